#include "core/plugin/plugin_file.hpp"

#include <elf.h>

#include <cstring>
#include <string_view>

#include "core/error.hpp"
#include "core/files.hpp"

namespace sluice {
namespace {

constexpr std::string_view kMagic = SLUICE_DETAIL_MAGIC;

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "the plugin loader does not know this processor's ELF machine number"
#endif

void check_library(const std::string& file, std::string_view bytes) {
  if (!bytes.starts_with(ELFMAG)) throw InputError("{}: not a shared library", file);
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header))
    throw InputError("{}: truncated: {} bytes are not even the header of a shared library", file,
                     bytes.size());
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.e_type != ET_DYN)
    throw InputError("{}: not a shared library, but another kind of object file", file);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine)
    throw InputError("{}: a library for another processor (ELF machine {}, this one's is {})", file,
                     header.e_machine, kMachine);
  // The section headers come last in what linkers write, so a file that was cut off lacks them.
  const std::uint64_t sections = std::uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shoff > bytes.size() || sections > bytes.size() - header.e_shoff)
    throw InputError("{}: truncated: its header speaks of {} bytes, it has {}", file,
                     header.e_shoff + sections, bytes.size());
}

PluginIdentity find_identity(const std::string& file, std::string_view bytes) {
  const std::size_t at = bytes.find(kMagic);
  if (at == std::string_view::npos)
    throw InputError(
        "{}: a shared library, but no Sluice policy: it has no descriptor "
        "(SLUICE_POLICY makes one)",
        file);
  if (bytes.find(kMagic, at + 1) != std::string_view::npos)
    throw InputError("{}: has more than one descriptor; a library holds one policy", file);
  PluginIdentity identity;
  if (bytes.size() - at < sizeof(identity))
    throw InputError("{}: truncated within its descriptor", file);
  std::memcpy(&identity, bytes.data() + at, sizeof(identity));
  return identity;
}

// Text of a fixed field, fit to be printed whatever the file holds.
template <std::size_t N>
std::string text_of(const std::array<char, N>& field) {
  std::string text(field.data(), strnlen(field.data(), N));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

void check_identity(const std::string& file, const std::string& stem,
                    const PluginIdentity& identity) {
  if (identity.abi_version != kAbiVersion)
    throw InputError(
        "{}: made for plugin ABI {}, this Sluice has ABI {}; build it against this "
        "Sluice's headers",
        file, identity.abi_version, kAbiVersion);
  if (identity.descriptor_bytes != sizeof(PluginDescriptor))
    throw InputError(
        "{}: its descriptor has {} bytes, this Sluice's has {}; build it against this "
        "Sluice's headers",
        file, identity.descriptor_bytes, sizeof(PluginDescriptor));
  if (const std::string theirs = text_of(identity.signature); theirs != SLUICE_SIGNATURE)
    throw InputError(
        "{}: built with '{}', this Sluice with '{}'; build both with the same compiler", file,
        theirs, SLUICE_SIGNATURE);
  const std::string name = text_of(identity.name);
  if (is_reserved_policy(name))
    throw InputError("{}: calls itself '{}', a name that is reserved for Sluice's own policy", file,
                     name);
  if (name != stem)
    throw InputError("{}: calls itself '{}', but its file is named '{}'; the two must be the same",
                     file, name, stem);
}

}  // namespace

bool is_reserved_policy(std::string_view name) { return name == "resident" || name == "mapped"; }

std::string fingerprint_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

PluginFile read_plugin_file(const std::filesystem::path& file) {
  const std::string name = file.string();
  const std::string bytes = read_file(file, kLargestPlugin);
  check_library(name, bytes);
  const PluginIdentity identity = find_identity(name, bytes);
  check_identity(name, file.stem().string(), identity);
  return {identity, fingerprint_of(bytes)};
}

}  // namespace sluice
