// What a record says about where it comes from.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

// Version, commit (null where the build knew none), compiler, build type.
nlohmann::json build_info();

// The same as a line.
std::string version_text();

// The commit that was built, with "-dirty" behind it where files had changed; empty: not known. Its
// source is written by the build.
const char* build_commit();

// Name, processor, cores, memory, system, graphics driver (null: none).
nlohmann::json machine_info();

// Now, in UTC: "2025-01-31T12:00:00Z".
std::string utc_now();

// Peak memory of this process since start_peak_memory(), in bytes; since its start where the system
// cannot tell.
void start_peak_memory();
std::uint64_t peak_memory_bytes();

}  // namespace sluice
