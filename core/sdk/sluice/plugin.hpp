// The plugin's descriptor: what the loader checks before any of the plugin's code runs.
#pragma once
#include <algorithm>
#include <array>
#include <iterator>
#include <new>

#include "sluice/policy.hpp"

namespace sluice {

// Raised with every change of what a plugin sees: one made for another is refused.
inline constexpr std::uint32_t kAbiVersion = 4;

#define SLUICE_DETAIL_TEXT2(x) #x
#define SLUICE_DETAIL_TEXT(x) SLUICE_DETAIL_TEXT2(x)
// Whatever may make two builds disagree about a vtable or a type of the standard library.
#if defined(__clang__)
#define SLUICE_DETAIL_COMPILER "clang " SLUICE_DETAIL_TEXT(__clang_major__)
#elif defined(__GNUC__)
#define SLUICE_DETAIL_COMPILER "gcc " SLUICE_DETAIL_TEXT(__GNUC__)
#else
#error "Sluice plugins are built with g++ or clang++"
#endif
#if defined(_GLIBCXX_USE_CXX11_ABI)
#define SLUICE_DETAIL_LIBRARY "libstdc++ cxx11=" SLUICE_DETAIL_TEXT(_GLIBCXX_USE_CXX11_ABI)
#else
#define SLUICE_DETAIL_LIBRARY "libc++"
#endif
#if defined(_GLIBCXX_DEBUG)
#define SLUICE_DETAIL_MODE " debug"
#else
#define SLUICE_DETAIL_MODE ""
#endif
#define SLUICE_SIGNATURE SLUICE_DETAIL_COMPILER "; " SLUICE_DETAIL_LIBRARY SLUICE_DETAIL_MODE

enum class ParamType : std::uint8_t { integer, real, boolean, text };

// A parameter, declared once: checks, help and defaults follow from it. A table that makes no sense
// (a name twice, a default out of range) makes the loader refuse the plugin.
struct ParamSpec {
  const char* name;  // lower-case letters, digits and underscores
  ParamType type;
  double fallback;  // of an integer: a whole number; of a boolean: 0 or not; of a text: unused
  double min, max;  // inclusive; of a boolean or a text: unused
  const char* help;
  const char* text_fallback = "";
  const char* choices = "";  // of a text: all that it may be, separated by |; empty: anything
};

// Values that were checked against the specs: every key known, every value in range, every default
// filled in. Lives as long as the policy that is made from it. Asking for a name that was not
// declared, or as another type, throws.
class Params {
 public:
  virtual std::int64_t integer(std::string_view name) const = 0;
  virtual double real(std::string_view name) const = 0;
  virtual bool boolean(std::string_view name) const = 0;
  virtual std::string_view text(std::string_view name) const = 0;

 protected:
  ~Params() = default;
};

// Plain bytes, so that the loader can read them out of the file without loading it: a library made
// for another ABI is refused before its static initialisers could run. The fields never move.
struct PluginIdentity {
  std::array<char, 16> magic{};
  std::uint32_t abi_version = 0;
  std::uint32_t descriptor_bytes = 0;
  std::array<char, 104> signature{};
  std::array<char, 64> name{};
};
static_assert(sizeof(PluginIdentity) == 192);

// Everything that it points to is the library's own and stays. None may be null, but for `params`
// of no parameters.
struct PluginDescriptor {
  const PluginIdentity* identity;
  const char* summary;  // one line
  const char* version;
  const ParamSpec* params;
  std::size_t param_count;
  // Once for each run, on the thread that will call the policy. What it throws, or a null pointer,
  // ends the run under the policy's name; std::invalid_argument, for a text that it does not
  // understand, is the user's mistake.
  IOffloadPolicy* (*create)(const Params&);
  void (*destroy)(IOffloadPolicy*);  // on the side that allocated; must not throw
};

namespace detail {

template <std::size_t N, std::size_t M>
consteval std::array<char, N> padded(const char (&text)[M]) {
  static_assert(M <= N, "this text is too long for the plugin's identity");
  std::array<char, N> out{};
  std::copy_n(text, M, out.begin());
  return out;
}

}  // namespace detail

// By which the loader finds the identity in the file's bytes.
#define SLUICE_DETAIL_MAGIC "SLUICE\x1APOLICY\n"

// Makes `Type` (constructible from `const Params&`) the policy of this library. NAME is the bare
// word by which an experiment names it, at most 63 letters, and must equal the file's name; SPECS is
// an array of ParamSpec that lives as long as the library. Once in a library, outside any namespace.
#define SLUICE_POLICY(Type, NAME, VERSION, SUMMARY, SPECS)                                         \
  extern "C" {                                                                                     \
  [[gnu::visibility("default")]] extern const ::sluice::PluginIdentity sluice_plugin_identity;     \
  [[gnu::visibility("default")]] extern const ::sluice::PluginDescriptor sluice_plugin_descriptor; \
  }                                                                                                \
  constexpr ::sluice::PluginIdentity sluice_plugin_identity{                                       \
      ::sluice::detail::padded<16>(SLUICE_DETAIL_MAGIC), ::sluice::kAbiVersion,                    \
      sizeof(::sluice::PluginDescriptor), ::sluice::detail::padded<104>(SLUICE_SIGNATURE),         \
      ::sluice::detail::padded<64>(#NAME)};                                                        \
  const ::sluice::PluginDescriptor sluice_plugin_descriptor {                                      \
    &sluice_plugin_identity, SUMMARY, VERSION, std::data(SPECS), std::size(SPECS),                 \
        [](const ::sluice::Params& params) -> ::sluice::IOffloadPolicy* {                          \
          return new Type(params);                                                                 \
        },                                                                                         \
        [](::sluice::IOffloadPolicy* policy) { delete policy; }                                    \
  }

}  // namespace sluice
