// Text from outside on its way to a terminal.
#pragma once
#include <string>
#include <string_view>

namespace sluice {

// `text` with what a terminal would obey rather than show written out, as in "\x1b" and "\u009b":
// control characters, line ends too, and what is not UTF-8.
std::string printable(std::string_view text);

}  // namespace sluice
