#include "core/device/cpu_device.hpp"

#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "core/device/cpu_stream.hpp"
#include "core/device/memory_book.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kHugePage = 2ull << 20;

std::uint64_t machine_memory_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
}

std::string processor_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos) return line.substr(value + 2);
  }
  utsname machine{};
  return uname(&machine) == 0 ? machine.machine : "unknown processor";
}

// Weights are read from one end to the other: fewer, larger pages are worth some percent.
void advise_huge_pages(void* memory, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uint64_t>(memory);
  const std::uint64_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uint64_t last = (begin + bytes) / kHugePage * kHugePage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

DeviceInfo info_for(const CpuDeviceOptions& options) {
  DeviceInfo info{.kind = DeviceKind::cpu,
                  .name = processor_name(),
                  .memory_bytes = machine_memory_bytes(),
                  .memory_limit = 0,
                  .executes = true};
  info.memory_limit = options.memory_limit.value_or(info.memory_bytes);
  if (info.memory_limit == 0)
    throw InputError("the memory limit is 0 bytes; it must be at least 1");
  if (info.memory_limit > info.memory_bytes)
    throw InputError("the memory limit of {} bytes is more than the {} bytes that this machine has",
                     info.memory_limit, info.memory_bytes);
  if (options.link_gbps && !(std::isfinite(*options.link_gbps) && *options.link_gbps > 0))
    throw InputError("a link of {} GB/s cannot be; the rate must be more than 0",
                     *options.link_gbps);
  return info;
}

class CpuDevice final : public IDevice {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options)
      : info_(info_for(options)), memory_(info_.memory_limit) {
    if (!options.link_gbps) return;
    h2d_ = std::make_unique<ThrottledLink>(*options.link_gbps);
    d2h_ = std::make_unique<ThrottledLink>(*options.link_gbps);
  }
  ~CpuDevice() override {
    // Streams wait for each other, so all must run until the last is done.
    for (const auto& stream : streams_) stream->await(stream->posted());
  }

  const DeviceInfo& info() const override { return info_; }

  StreamId make_stream(Resource, const char* name) override {
    streams_.push_back(std::make_unique<CpuStream>(name, failure_));
    return static_cast<StreamId>(streams_.size());
  }

  void enqueue(StreamId stream, const Op&, const Body& body) override { at(stream).post(body); }

  void copy(StreamId stream, const Op& op, void* to, const void* from,
            std::uint64_t bytes) override {
    ThrottledLink* link = op.on == Resource::h2d   ? h2d_.get()
                          : op.on == Resource::d2h ? d2h_.get()
                                                   : nullptr;
    at(stream).post(CpuStream::Copy{to, from, bytes, link, link ? steady_now_ns() : 0});
  }

  Event record(StreamId stream) override { return {stream, at(stream).posted()}; }

  void wait(StreamId stream, Event event, WaitFor why) override {
    if (event.position == 0 || event.stream == stream) return;
    if (why == WaitFor::order && reached(event)) return;
    at(stream).post(CpuStream::Wait{&at(event.stream), event.position, why});
  }

  void sync(Event event) override {
    if (!reached(event)) at(event.stream).await(event.position);
    if (!failure_.pending()) return;
    for (const auto& stream : streams_) stream->skip_all_posted();
    std::rethrow_exception(failure_.take());
  }

  bool reached(Event event) override {
    return event.stream == kHostLine || at(event.stream).reached(event.position);
  }

  void host(const Op&) override {}

  std::uint64_t now_ns() override { return steady_now_ns(); }
  std::uint64_t stall_ns(StreamId stream) override { return at(stream).stall_ns(); }
  void keep_times(StreamId stream) override { at(stream).keep_times(); }
  std::vector<OpTimes> take_times(StreamId stream) override { return at(stream).take_times(); }

  void* allocate(std::uint64_t bytes, std::string_view what) override {
    const std::uint64_t counted = memory_.admit(bytes, what);
    void* memory = std::aligned_alloc(kDeviceAlignment, counted);
    if (!memory) throw Error("the system has no {} bytes of memory left for {}", bytes, what);
    advise_huge_pages(memory, counted);
    memory_.add_device(memory, counted);
    return memory;
  }

  void release(void* memory) noexcept override {
    if (!memory) return;
    memory_.remove_device(memory);
    std::free(memory);
  }

  void* allocate_pinned(std::uint64_t bytes, std::string_view what) override {
    if (bytes == 0) throw Error("asked for 0 bytes of pinned memory for {}", what);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw Error("the system refuses {} bytes of host memory for {}: {}", bytes, what,
                  std::strerror(errno));
    advise_huge_pages(memory, bytes);
    memory_.add_pinned(memory, bytes);
    return memory;
  }

  void release_pinned(void* memory) noexcept override {
    if (memory) munmap(memory, memory_.remove_pinned(memory));
  }

  MemoryUse memory_use() const override { return memory_.use(); }

 private:
  CpuStream& at(StreamId stream) const { return *streams_.at(stream - std::size_t{1}); }

  const DeviceInfo info_;
  MemoryBook memory_;
  std::unique_ptr<ThrottledLink> h2d_, d2h_;
  Failure failure_;
  std::vector<std::unique_ptr<CpuStream>> streams_;
};

}  // namespace

std::unique_ptr<IDevice> make_cpu_device(const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace sluice
