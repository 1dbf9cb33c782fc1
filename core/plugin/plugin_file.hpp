// What can be told of a plugin's file without loading it: none of its code has run.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "sluice/plugin.hpp"

namespace sluice {

// The names of policies that are part of Sluice; no plugin may have them.
bool is_reserved_policy(std::string_view name);

struct PluginFile {
  PluginIdentity identity;
  std::string fingerprint;  // 16 hex digits: FNV-1a of the bytes
};

inline constexpr std::uint64_t kLargestPlugin = 1ull << 30;

// Throws InputError, each with a message of its own, for: no such file, unreadable, not a library,
// a library for another processor, truncated, no descriptor, several descriptors, another ABI,
// another compiler, a name unlike the file's, a reserved name.
PluginFile read_plugin_file(const std::filesystem::path& file);

// FNV-1a, 64 bit, as 16 hex digits.
std::string fingerprint_of(std::string_view bytes);

}  // namespace sluice
