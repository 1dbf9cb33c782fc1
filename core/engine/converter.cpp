#include "core/engine/converter.hpp"

#include "core/device/drain.hpp"
#include "core/weights/dequantise.hpp"

namespace sluice {

Converter::Converter(IDevice& device, const ModelLayout& layout, std::uint64_t buffer_bytes)
    : device_(device),
      layout_(layout),
      memory_(device, Buffer::Where::device, 2 * buffer_bytes, "staging for quantised weights"),
      stream_(device.make_stream(Resource::compute, "convert")) {
  staging_[0].data = memory_.data();
  staging_[1].data = memory_.data() + buffer_bytes;
}

Converter::~Converter() { drain_quietly(device_, stream_); }

std::byte* Converter::take(StreamId lane) {
  Staging& staging = staging_[turn_++ % staging_.size()];
  if (staging.converted.position != 0) device_.wait(lane, staging.converted);
  return staging.data;
}

Event Converter::convert(StreamId lane, UnitId unit, Encoding wire, std::byte* to,
                         std::array<Event, 2> earlier) {
  Staging& staging = staging_[(turn_ - 1) % staging_.size()];
  device_.wait(stream_, device_.record(lane));
  for (const Event& event : earlier)
    if (event.position != 0 && event.stream != stream_) device_.wait(stream_, event);
  enqueue_dequantise(device_, stream_, layout_, unit, wire, staging.data, to);
  staging.converted = device_.record(stream_);
  return staging.converted;
}

}  // namespace sluice
