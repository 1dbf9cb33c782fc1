#include "harness/printable.hpp"

#include <fmt/format.h>

#include "models/tokenizer/utf8.hpp"

namespace sluice {

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, utf8::valid_prefix(text));
    for (std::size_t at = 0; at < valid.size();) {
      const auto [value, size] = utf8::decode(valid, at);
      const auto code = static_cast<unsigned>(value);
      if (code < 0x20 || code == 0x7f)
        out += fmt::format("\\x{:02x}", code);
      else if (code >= 0x80 && code < 0xa0)
        out += fmt::format("\\u{:04x}", code);
      else
        out += valid.substr(at, size);
      at += size;
    }
    text.remove_prefix(valid.size());
    if (text.empty()) break;
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace sluice
