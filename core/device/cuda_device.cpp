#include "core/device/cuda_device.hpp"

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <nvtx3/nvtx3.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "core/device/cuda_error.hpp"
#include "core/device/cuda_process_memory.hpp"
#include "core/device/cuda_repeated.hpp"
#include "core/device/cuda_stream.hpp"
#include "core/device/memory_book.hpp"

namespace sluice {
namespace {

// What kernels and libraries load when they are first used, and what allocations are rounded up by: 69
// MB were seen on an H200, see docs/results.md.
constexpr std::uint64_t kLoadedLater = 96ull << 20;

int checked_ordinal(int ordinal) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    throw InputError("no NVIDIA GPU can be used here: {}", cudaGetErrorString(status));
  if (ordinal < 0 || ordinal >= count)
    throw InputError("there is no GPU {}: this machine has {}, counted from 0", ordinal, count);
  return ordinal;
}

DeviceInfo info_for(const CudaDeviceOptions& options, const CudaProcessMemory& process) {
  SLUICE_CUDA_CHECK(cudaSetDevice(options.ordinal));
  cudaDeviceProp properties{};
  SLUICE_CUDA_CHECK(cudaGetDeviceProperties(&properties, options.ordinal));
  std::size_t free_bytes = 0, total_bytes = 0;
  SLUICE_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  DeviceInfo info{.kind = DeviceKind::cuda,
                  .name = properties.name,
                  .memory_bytes = total_bytes,
                  .memory_limit = options.memory_limit.value_or(free_bytes + process.bytes()),
                  .executes = true};
  if (info.memory_limit == 0)
    throw InputError("the memory limit is 0 bytes; it must be at least 1");
  return info;
}

class CudaDevice final : public IDevice {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options)
      : process_(checked_ordinal(options.ordinal)),
        info_(info_for(options, process_)),
        memory_(info_.memory_limit),
        events_(cudaEventDisableTiming),
        timers_(cudaEventDefault),
        least_other_bytes_(process_.bytes() + kLoadedLater) {
    int lowest = 0;
    SLUICE_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest_priority_));
  }
  ~CudaDevice() override {
    streams_.clear();
    if (origin_.event) timers_.give(origin_.event);
  }

  const DeviceInfo& info() const override { return info_; }

  StreamId make_stream(Resource resource, const char*) override {
    const int priority = resource == Resource::compute ? highest_priority_ : 0;
    streams_.push_back(std::make_unique<CudaStream>(events_, timers_, priority));
    on_host_.push_back(resource == Resource::host);
    return static_cast<StreamId>(streams_.size());
  }

  void enqueue(StreamId stream, const Op& op, const Body& body) override {
    CudaStream& s = at(stream);
    const nvtx3::scoped_range range(op.name);
    if (s.mode() == CudaStream::Mode::replay) {
      s.end();
      return;
    }
    s.begin();
    if (on_host_[stream - std::size_t{1}])
      enqueue_on_host(s, body);
    else
      body(s.native());
    s.end();
  }
  void copy(StreamId stream, const Op&, void* to, const void* from, std::uint64_t bytes) override {
    CudaStream& s = at(stream);
    s.refuse_within_sequence("a copy");
    s.begin();
    SLUICE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s.native()));
    s.end();
  }

  std::unique_ptr<Repeated> make_repeated(StreamId stream) override {
    // Operations of a graph have no times of their own.
    if (at(stream).keeps_times()) return std::make_unique<Repeated>();
    return std::make_unique<CudaRepeated>(at(stream));
  }

  Event record(StreamId stream) override {
    at(stream).refuse_within_sequence("an event is recorded");
    return {stream, at(stream).record()};
  }
  void wait(StreamId stream, Event event, WaitFor why) override {
    at(stream).refuse_within_sequence("a stream waits");
    if (event.position == 0 || event.stream == stream) return;
    at(stream).wait(at(event.stream).event_at(event.position), why == WaitFor::weights);
  }
  void sync(Event event) override {
    if (event.position != 0) at(event.stream).await(event.position);
  }
  void await(StreamId stream, const Signal& signal) override { at(stream).await(signal); }
  bool reached(Event event) override {
    return event.position == 0 || at(event.stream).reached(event.position);
  }
  void host(const Op&) override {}

  std::uint64_t now_ns() override {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
  }
  std::uint64_t stall_ns(StreamId stream) override { return at(stream).stall_ns(); }
  void keep_times(StreamId stream) override {
    CudaStream& s = at(stream);
    if (!origin_.event) {
      origin_.event = timers_.take();
      SLUICE_CUDA_CHECK(cudaEventRecord(origin_.event, s.native()));
      SLUICE_CUDA_CHECK(cudaEventSynchronize(origin_.event));
      origin_.ns = static_cast<double>(now_ns());
    }
    s.keep_times(origin_);
  }
  std::vector<OpTimes> take_times(StreamId stream) override { return at(stream).take_times(); }

  void* allocate(std::uint64_t bytes, std::string_view what) override {
    const std::uint64_t counted = memory_.admit(bytes, what, other_bytes());
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation)
      throw MemoryLimitError("the GPU has no {} bytes left for {}", bytes, what);
    SLUICE_CUDA_CHECK(status);
    memory_.add_device(memory, counted);
    static_cast<void>(other_bytes());  // for the peak
    return memory;
  }
  void release(void* memory) noexcept override {
    if (!memory) return;
    memory_.remove_device(memory);
    cudaFree(memory);
  }

  // One mapping, registered: cudaMallocHost takes nine times as long for gigabytes, and allocators
  // that cache pinned memory round it up to powers of two.
  void* allocate_pinned(std::uint64_t bytes, std::string_view what) override {
    if (bytes == 0) throw Error("asked for 0 bytes of pinned memory for {}", what);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw Error("the system refuses {} bytes of host memory for {}: {}", bytes, what,
                  std::strerror(errno));
    madvise(memory, bytes, MADV_HUGEPAGE);
    const cudaError_t status =
        cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    if (status != cudaSuccess) {
      munmap(memory, bytes);
      cudaGetLastError();  // it is told here
      throw PinningError("the system refuses to pin {} bytes of host memory for {}: {}", bytes,
                         what, cudaGetErrorString(status));
    }
    memory_.add_pinned(memory, bytes);
    return memory;
  }
  void release_pinned(void* memory) noexcept override {
    if (!memory) return;
    cudaHostUnregister(memory);
    munmap(memory, memory_.remove_pinned(memory));
  }

  MemoryUse memory_use() const override {
    MemoryUse use = memory_.use();
    use.other_bytes = other_bytes();
    use.process_peak_bytes = process_peak_bytes_;
    return use;
  }

 private:
  static void enqueue_on_host(CudaStream& stream, const Body& body) {
    auto copy = std::make_unique<Body>(body);
    SLUICE_CUDA_CHECK(cudaLaunchHostFunc(
        stream.native(),
        [](void* argument) {
          const std::unique_ptr<Body> own(static_cast<Body*>(argument));
          (*own)(nullptr);
        },
        copy.get()));
    static_cast<void>(copy.release());
  }

  // What the process takes beside the book's blocks, and room for what it is still to load.
  std::uint64_t other_bytes() const {
    const std::uint64_t all = process_.bytes();
    process_peak_bytes_ = std::max(process_peak_bytes_, all);
    return std::max(all - std::min(all, memory_.use().device_bytes), least_other_bytes_);
  }

  CudaStream& at(StreamId stream) const { return *streams_.at(stream - std::size_t{1}); }

  const CudaProcessMemory process_;  // first: it looks before there is a context
  const DeviceInfo info_;
  MemoryBook memory_;
  CudaEventPool events_, timers_;
  CudaTime origin_;
  int highest_priority_ = 0;
  std::vector<std::unique_ptr<CudaStream>> streams_;
  std::vector<bool> on_host_;  // by stream
  const std::uint64_t least_other_bytes_;
  mutable std::uint64_t process_peak_bytes_ = 0;
};

}  // namespace

std::unique_ptr<IDevice> make_cuda_device(const CudaDeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace sluice
