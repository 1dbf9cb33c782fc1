// The two kinds of failure that reach a person. Both are caught once, in main().
#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace sluice {

// The run failed: a device refused, a plugin threw, a file could not be written. Exit code 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  template <typename... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// What the user gave is wrong: a file, an option, a budget. The message names the file and the
// place, and says what would be right. Exit code 2.
class InputError : public Error {
 public:
  using Error::Error;
};

}  // namespace sluice
