// Operations: what a device is asked to do, and everything that the simulator, the audit and the
// trace know about it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "sluice/unit.hpp"

namespace sluice {

// Where an operation's time is spent. Each is one FIFO.
enum class Resource : std::uint8_t { h2d, d2h, compute, host };

// Streams count from 1; 0 is the host's own line of execution.
using StreamId = std::uint32_t;
inline constexpr StreamId kHostLine = 0;

// A place on a stream. A value: it is never recorded again.
struct Event {
  StreamId stream = kHostLine;
  std::uint64_t position = 0;  // 0: has already happened
};

// Bytes of device or host memory, by address.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

inline Range range_of(const void* data, std::uint64_t bytes) {
  return {reinterpret_cast<std::uint64_t>(data), bytes};
}

struct Op {
  const char* name = "";  // a literal
  UnitId unit = kNoUnit;  // whose weights, for traces
  Resource on = Resource::compute;
  std::uint64_t bytes = 0;  // moved over the link or through device memory
  std::uint64_t flops = 0;
  std::uint32_t parts = 1;  // that follow each other: each has an operation's fixed cost
  std::span<const Range> reads{}, writes{};  // read during the call only
};

// When something stood on its stream, on the clock of IDevice::now_ns().
struct OpTimes {
  std::uint64_t begin_ns = 0, end_ns = 0;
};

// A stream of the platform's own (cudaStream_t); null where there is none.
using NativeStream = void*;

// What an operation does: a small trivially copyable callable, held in place. On CUDA it is called
// at once and launches; on the CPU it is called later on the stream's thread; under simulation
// never. So it must hold values and device pointers, no references to the caller's frame.
class Body {
 public:
  static constexpr std::size_t kCapacity = 384;

  template <typename F>
  requires(std::is_invocable_v<const F&, NativeStream> &&
           !std::is_same_v<std::remove_cvref_t<F>, Body>)
      Body(const F& f) {  // implicit, so that a lambda can be passed
    static_assert(sizeof(F) <= kCapacity && alignof(F) <= alignof(std::max_align_t));
    static_assert(std::is_trivially_copyable_v<F>);
    std::memcpy(storage_, &f, sizeof(F));
    call_ = [](const void* self, NativeStream stream) { (*static_cast<const F*>(self))(stream); };
  }

  void operator()(NativeStream stream) const { call_(storage_, stream); }

 private:
  void (*call_)(const void*, NativeStream);
  alignas(std::max_align_t) std::byte storage_[kCapacity];
};

}  // namespace sluice
