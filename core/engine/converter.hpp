// Units that lie on the device in another encoding than they cross the link in. What arrives lands in
// one of two staging buffers and is dequantised into its slot on a stream of its own, so that a lane
// never waits for it: the next unit is on its way into the other buffer.
#pragma once
#include <array>

#include "core/device/device.hpp"
#include "core/weights/slab_layout.hpp"

namespace sluice {

class Converter {
 public:
  // `buffer_bytes`: of one staging buffer, the largest slab that crosses the link. `layout` must
  // outlive this. Throws MemoryLimitError.
  Converter(IDevice& device, const ModelLayout& layout, std::uint64_t buffer_bytes);
  ~Converter();  // drains its stream

  // The staging buffer that `lane` copies the next unit into. The lane waits until what lay in it has
  // been dequantised. All of the unit is copied before the next is taken.
  std::byte* take(StreamId lane);
  // Dequantises the unit in the buffer taken last into `to`, behind the copies that `lane` has so
  // far and behind `earlier`, what last wrote and read `to`. Returns the mark of its end.
  Event convert(StreamId lane, UnitId unit, Encoding wire, std::byte* to,
                std::array<Event, 2> earlier);
  StreamId stream() const { return stream_; }

 private:
  struct Staging {
    std::byte* data = nullptr;
    Event converted;
  };

  IDevice& device_;
  const ModelLayout& layout_;
  Buffer memory_;
  StreamId stream_;
  std::array<Staging, 2> staging_;
  std::size_t turn_ = 0;  // of the next buffer to be taken
};

}  // namespace sluice
