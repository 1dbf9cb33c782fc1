// The seam under the engine and the model: streams, events, operations and memory, on hardware or
// not. Called from one host thread. What is enqueued runs later, in the order of its stream; the
// memory that it touches must live until then. A stream that was not made here is a bug and throws.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device/op.hpp"
#include "core/error.hpp"

namespace sluice {

enum class DeviceKind : std::uint8_t { cpu, cuda, sim };

constexpr std::string_view name_of(DeviceKind kind) {
  return kind == DeviceKind::cpu ? "cpu" : kind == DeviceKind::cuda ? "cuda" : "sim";
}

// The arena's limit does not leave room. what() says how much was asked, used and allowed.
class MemoryLimitError : public Error {
 public:
  using Error::Error;
};

// The system does not pin as much host memory as was asked for.
class PinningError : public Error {
 public:
  using Error::Error;
};

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;                // the processor's or the machine's
  std::uint64_t memory_bytes = 0;  // what the hardware has
  std::uint64_t memory_limit = 0;  // what may be allocated, in bytes
  bool executes = true;            // false: bodies never run, memory is addresses only
};

struct MemoryUse {
  std::uint64_t device_bytes = 0, device_peak_bytes = 0;
  std::uint64_t pinned_bytes = 0, pinned_peak_bytes = 0;
  // What the process takes of the device beside those bytes (a GPU's context, libraries, rounding of
  // allocations), and at its most all that it takes as the driver sees it. Both count under the
  // limit; both are 0 where device memory is no driver's.
  std::uint64_t other_bytes = 0, process_peak_bytes = 0;
};

// Why a stream waits: time spent waiting for weights is the stall that a policy leaves exposed.
enum class WaitFor : std::uint8_t { order, weights };

// Words in pinned memory that an operation sets as its last act, each to `value`.
struct Signal {
  const std::uint32_t* words = nullptr;
  std::uint32_t count = 0, value = 0;
};

// A sequence of operations on one stream that is enqueued again and again. Each run enqueues the
// same operations with the same bodies, without events or waits between them: a device may keep them
// from one run and put them on the stream in later ones without calling the bodies.
class Repeated {
 public:
  virtual ~Repeated() = default;
  // `enqueue` calls IDevice::enqueue for each of them, every time.
  virtual void run(const std::function<void()>& enqueue) { enqueue(); }
};

class IDevice {
 public:
  virtual ~IDevice() = default;  // streams are drained; memory must have been given back

  virtual const DeviceInfo& info() const = 0;

  // It lives as long as the device. `name` is a literal, for traces.
  virtual StreamId make_stream(Resource resource, const char* name) = 0;
  // `op` is read and `body` copied during the call. An exception out of a body that runs later is
  // rethrown by the next call that waits on the host, and what was enqueued by then is skipped.
  virtual void enqueue(StreamId stream, const Op& op, const Body& body) = 0;
  // Copies `bytes` between host and device memory, the direction by `op.on` (h2d or d2h). The host's
  // side should be pinned.
  virtual void copy(StreamId stream, const Op& op, void* to, const void* from,
                    std::uint64_t bytes) = 0;
  // For a sequence of operations on `stream`, which must be done when the result is destroyed.
  virtual std::unique_ptr<Repeated> make_repeated(StreamId) { return std::make_unique<Repeated>(); }
  // The place behind everything that was enqueued on `stream` so far.
  virtual Event record(StreamId stream) = 0;
  // Later work of `stream` waits for `event`, which may lie on any stream.
  virtual void wait(StreamId stream, Event event, WaitFor why = WaitFor::order) = 0;
  virtual void sync(Event event) = 0;  // the host waits
  // The host waits for everything that was enqueued on `stream`, whose last operation sets `signal` when all
  // is written that the host reads of it: a device may watch the words instead of the stream.
  virtual void await(StreamId stream, const Signal& signal) {
    static_cast<void>(signal);
    sync(record(stream));
  }
  virtual bool reached(Event event) = 0;  // without waiting
  // The host itself is about to touch memory that operations touch; no effect but under audit.
  virtual void host(const Op& op) = 0;

  virtual std::uint64_t now_ns() = 0;  // a steady clock: of the host, or virtual time
  // How long `stream` has stood at waits for weights, over all operations that have completed.
  virtual std::uint64_t stall_ns(StreamId stream) = 0;
  // From now on the device keeps the times of every operation and copy of `stream`, and of every wait
  // for weights on another stream's event: those of stall_ns(). To be called before the first.
  virtual void keep_times(StreamId stream) = 0;
  // Of those that have completed since the last call, in the order in which they were enqueued.
  virtual std::vector<OpTimes> take_times(StreamId stream) = 0;

  // Aligned to 256 bytes; `what` names it in errors. Throws MemoryLimitError.
  virtual void* allocate(std::uint64_t bytes, std::string_view what) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Host memory that copies can read at the link's full rate and kernels in place; exactly `bytes`,
  // page-aligned. Throws PinningError.
  virtual void* allocate_pinned(std::uint64_t bytes, std::string_view what) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  virtual MemoryUse memory_use() const = 0;
};

// Bytes that may still be allocated.
inline std::uint64_t free_bytes(const IDevice& device) {
  const MemoryUse use = device.memory_use();
  const std::uint64_t used = use.device_bytes + use.other_bytes;
  return device.info().memory_limit - std::min(device.info().memory_limit, used);
}

// Memory that gives itself back. Its last reader must have been waited for.
class Buffer {
 public:
  enum class Where : std::uint8_t { device, pinned };

  Buffer() = default;
  Buffer(IDevice& device, Where where, std::uint64_t bytes, std::string_view what)
      : device_(&device),
        where_(where),
        bytes_(bytes),
        data_(where == Where::device ? device.allocate(bytes, what)
                                     : device.allocate_pinned(bytes, what)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Buffer() {
    if (!data_) return;
    where_ == Where::device ? device_->release(data_) : device_->release_pinned(data_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::uint64_t bytes() const { return bytes_; }
  Range range() const { return range_of(data_, bytes_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(where_, other.where_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }

  IDevice* device_ = nullptr;
  Where where_ = Where::device;
  std::uint64_t bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace sluice
