#include "core/engine/staging_ring.hpp"

#include <algorithm>
#include <thread>

#include "core/device/drain.hpp"
#include "core/round_up.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kAlignment = 256;
// Beyond these, host memory is the limit.
constexpr unsigned kMostThreads = 16;

}  // namespace

StagingRing::StagingRing(IDevice& device, std::uint64_t half_bytes)
    : device_(device),
      half_bytes_(half_bytes),
      memory_(device, Buffer::Where::pinned, 2 * half_bytes, "the ring for unpinned weights"),
      threads_(std::min(kMostThreads, std::max(1u, std::thread::hardware_concurrency()))),
      filler_(device.make_stream(Resource::host, "fill")) {}

StagingRing::~StagingRing() { drain_quietly(device_, filler_); }

const std::byte* StagingRing::fill(StreamId lane, UnitId unit, const std::byte* from,
                                   std::uint64_t bytes) {
  if (bytes > half_bytes_)
    throw Error("{} bytes are staged at once; half of the ring has {}", bytes, half_bytes_);
  if (halves_[at_].used + bytes > half_bytes_) {
    at_ = 1 - at_;
    for (const Event& reader : halves_[at_].readers) device_.wait(filler_, reader);
    halves_[at_].readers.clear();
    halves_[at_].used = 0;
  }
  Half& half = halves_[at_];
  std::byte* const to = memory_.data() + at_ * half_bytes_ + half.used;
  half.used += round_up(bytes, kAlignment);

  const std::array reads{range_of(from, bytes)};
  const std::array writes{range_of(to, bytes)};
  device_.enqueue(
      filler_,
      {.name = "fill",
       .unit = unit,
       .on = Resource::host,
       .bytes = bytes,
       .reads = reads,
       .writes = writes},
      [threads = &threads_, to, from, bytes](NativeStream) { threads->copy(to, from, bytes); });
  device_.wait(lane, device_.record(filler_));
  return to;
}

void StagingRing::read_on(StreamId lane) { halves_[at_].readers.push_back(device_.record(lane)); }

}  // namespace sluice
