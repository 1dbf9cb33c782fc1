// What a call complains about.
#pragma once
#include <string>

#include "core/error.hpp"
#include "tests/catch.hpp"

namespace sluice {

#if __has_include(<catch2/catch_all.hpp>)
inline auto Contains(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
inline auto StartsWith(const std::string& text) { return Catch::Matchers::StartsWith(text); }
#else
using Catch::Contains;
using Catch::StartsWith;
#endif

// The message of the InputError that `f` throws; what it did instead where it threw none.
template <typename F>
std::string input_error(const F& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error.what();
  }
  return "(no InputError was thrown)";
}

}  // namespace sluice
