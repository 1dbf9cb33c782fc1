// Writes what happens on a device as a trace for Perfetto (https://ui.perfetto.dev) or
// chrome://tracing: a track per stream with its operations and its stalls, and one of the host.
//
// Format: "Trace Event Format", complete events and metadata, times in microseconds.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.hpp"

namespace sluice {

// Forwards everything to the device below, which keeps the times.
class TraceDevice : public IDevice {
 public:
  // Waits for all streams, then begins a section: a span on the host's track up to the next one.
  virtual void begin_section(const std::string& name) = 0;
  // Waits for all streams and ends the file. Nothing may be enqueued afterwards. Throws Error when
  // the disk refuses.
  virtual void finish() = 0;
};

// `units`: names by UnitId. `below` must outlive it. Throws InputError when `file` cannot be written.
std::unique_ptr<TraceDevice> make_trace_device(IDevice& below, const std::filesystem::path& file,
                                               std::vector<std::string> units);

}  // namespace sluice
