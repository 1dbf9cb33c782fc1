// Measures a device's memory and link: one JSON line. What a model's speed is held against.
//   bench_device [cpu|cuda]
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "core/device/make_device.hpp"

using namespace sluice;

namespace {

constexpr int kRuns = 5;

// The best of some runs in 1e9 bytes/s, each of `bytes` in pieces of `piece`.
double rate(IDevice& device, StreamId stream, Resource on, std::byte* to, const std::byte* from,
            std::uint64_t bytes, std::uint64_t piece) {
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const std::uint64_t start = device.now_ns();
    for (std::uint64_t at = 0; at < bytes; at += piece) {
      const std::uint64_t n = std::min(piece, bytes - at);
      const std::array reads{range_of(from + at, n)}, writes{range_of(to + at, n)};
      device.copy(stream, {.name = "copy", .on = on, .bytes = n, .reads = reads, .writes = writes},
                  to + at, from + at, n);
    }
    device.sync(device.record(stream));
    const double ns = static_cast<double>(device.now_ns() - start);
    best = std::max(best, static_cast<double>(bytes) / ns);
  }
  return best;
}

}  // namespace

int main(int count, char* arguments[]) {
  const bool cuda = count > 1 && std::string_view(arguments[1]) == "cuda";
  const std::uint64_t link_bytes = cuda ? 1ull << 30 : 128ull << 20;
  const std::uint64_t copy_bytes = cuda ? 4ull << 30 : 256ull << 20;
  try {
    const auto device = make_device({.kind = cuda ? DeviceKind::cuda : DeviceKind::cpu});
    const std::uint64_t at_start = device->memory_use().process_peak_bytes;
    const StreamId stream = device->make_stream(Resource::h2d, "copies");
    const Buffer one(*device, Buffer::Where::device, copy_bytes, "a block");
    const Buffer two(*device, Buffer::Where::device, copy_bytes, "a block");
    const Buffer host(*device, Buffer::Where::pinned, link_bytes, "host memory");
    std::memset(host.data(), 1, host.bytes());
    const auto up = [&](std::uint64_t piece) {
      return rate(*device, stream, Resource::h2d, one.data(), host.data(), link_bytes, piece);
    };
    const double h2d = up(link_bytes), chunked = up(8ull << 20);
    const double d2h =
        rate(*device, stream, Resource::d2h, host.data(), one.data(), link_bytes, link_bytes);
    const double copied =
        rate(*device, stream, Resource::compute, two.data(), one.data(), copy_bytes, copy_bytes);
    fmt::print(
        "{{\"what\": \"device\", \"device\": \"{}\", \"h2d_gbps\": {:.2f}, \"h2d_8mib_gbps\": "
        "{:.2f}, "
        "\"d2h_gbps\": {:.2f}, \"copy_read_and_written_gbps\": {:.1f}, \"process_bytes_at_start\": "
        "{}}}\n",
        device->info().name, h2d, chunked, d2h, 2 * copied, at_start);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
