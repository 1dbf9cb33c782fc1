// Measures what it costs that the host decides about experts in the middle of a token: 48 layers of
// kernels that only pass time, as long as those of Qwen3-30B-A3B at batch 1 on an H200, in each of which
// the host has to know what the router chose before what misses can be copied. Prints one JSON object a
// line: a token's time in each way to wait, and what each layer has beyond a token without waits.
//
//   wait_bench [HOST_US [MISS_PERCENT]]
//
// HOST_US: how long the host thinks about a choice. MISS_PERCENT of the layers miss one expert.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/device/cuda_error.hpp"

namespace sluice {
namespace {

constexpr unsigned kLayers = 48;
constexpr std::size_t kExpertBytes = 9437184, kSlots = 64;
constexpr int kTokens = 24;
constexpr unsigned kBehind = 4;  // layers, that a host follows a device that runs ahead

using Word = volatile unsigned;

__device__ void pass_time(int ns) {
  const long long begin = clock64(), cycles = static_cast<long long>(ns) * 1755 / 1000;
  while (clock64() - begin < cycles) {
  }
}
__device__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ void publish(Word* word, unsigned value) {
  __threadfence_system();
  *word = value;
}
__device__ void wait_for(Word* word, unsigned value) {
  while (static_cast<int>(*word - value) < 0) {
  }
  __threadfence_system();
}

__global__ void work_kernel(int ns) {
  wait_for_previous();
  let_next_begin();
  pass_time(ns);
}
// Tells the host what it has chosen; opens `opens`; waits for `gate`. Null: not.
__global__ void router_kernel(int ns, Word* ring, unsigned value, Word* opens, Word* gate) {
  wait_for_previous();
  if (!opens) let_next_begin();
  pass_time(ns);
  if (threadIdx.x != 0) return;
  if (opens) publish(opens, value);
  publish(ring, value);
  if (gate) wait_for(gate, value);
}

template <typename... P, typename... A>
void launch(void (*kernel)(P...), unsigned blocks, cudaStream_t stream, A... args) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = 128;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  SLUICE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, P(args)...));
}

void check(CUresult status) {
  if (status != CUDA_SUCCESS) throw std::runtime_error("a memory operation of a stream failed");
}
CUdeviceptr address(Word* word) { return reinterpret_cast<CUdeviceptr>(word); }

// How the host learns of a choice, and the device that it may go on.
enum class Way {
  none,          // nobody waits
  event,         // the host waits for an event, then enqueues the experts
  signal,        // the host watches a word that the router writes, then enqueues the experts
  stream_gate,   // the experts are enqueued; their stream waits for a word that the host writes
  router_gate,   // likewise, and the router itself waits for it
  ahead_stream,  // where nothing misses the router opens the stream's gate itself
  ahead_router,  // where nothing misses the router does not wait
};
constexpr std::array kWays{
    std::pair{Way::none, "none"},
    std::pair{Way::event, "event"},
    std::pair{Way::signal, "signal"},
    std::pair{Way::stream_gate, "stream_gate"},
    std::pair{Way::router_gate, "router_gate"},
    std::pair{Way::ahead_stream, "ahead_stream"},
    std::pair{Way::ahead_router, "ahead_router"},
};

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

class Bench {
 public:
  explicit Bench(double host_us) : host_us_(host_us) {
    int lowest = 0, highest = 0;
    SLUICE_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    SLUICE_CUDA_CHECK(cudaStreamCreateWithPriority(&compute_, cudaStreamNonBlocking, highest));
    SLUICE_CUDA_CHECK(cudaStreamCreateWithFlags(&lane_, cudaStreamNonBlocking));
    SLUICE_CUDA_CHECK(cudaHostAlloc(&pinned_, kSlots * kExpertBytes, cudaHostAllocMapped));
    SLUICE_CUDA_CHECK(cudaMalloc(&slots_, kSlots * kExpertBytes));
    SLUICE_CUDA_CHECK(cudaHostAlloc(&host_words_, 4096, cudaHostAllocMapped));
    SLUICE_CUDA_CHECK(cudaMalloc(&device_words_, 256));
    std::fill_n(static_cast<unsigned*>(host_words_), 1024, 0u);
    SLUICE_CUDA_CHECK(cudaMemset(device_words_, 0, 256));
    for (cudaEvent_t& event : events_)
      SLUICE_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }

  // The time of a token in us; `misses`: which layers do.
  double token(Way way, const std::vector<bool>& misses) {
    SLUICE_CUDA_CHECK(cudaDeviceSynchronize());
    const Clock::time_point begin = Clock::now();
    const unsigned first = value_ + 1;
    const unsigned behind = way == Way::event || way == Way::signal                ? 0
                            : way == Way::ahead_stream || way == Way::ahead_router ? kBehind
                                                                                   : 1;
    for (unsigned layer = 0; layer < kLayers; ++layer) {
      enqueue_router(way, ++value_, misses[layer]);
      if (behind != 0) enqueue_experts();
      if (way != Way::none && layer >= behind)
        answer(way, first + layer - behind, misses[layer - behind]);
    }
    if (way != Way::none)
      for (unsigned layer = kLayers - behind; layer < kLayers; ++layer)
        answer(way, first + layer, misses[layer]);
    SLUICE_CUDA_CHECK(cudaStreamSynchronize(compute_));
    return us_since(begin);
  }

 private:
  Word* ring() const { return static_cast<Word*>(host_words_); }
  Word* host_gate() const { return static_cast<Word*>(host_words_) + 256; }
  Word* device_gate() const { return static_cast<Word*>(device_words_); }

  void enqueue_router(Way way, unsigned value, bool misses) {
    for (int i = 0; i < 3; ++i) launch(work_kernel, 132, compute_, 8000);  // attention
    launch(work_kernel, 64, compute_, 3000);                               // the router's product
    Word *opens = nullptr, *gate = nullptr;
    if (way == Way::ahead_stream && !misses) opens = device_gate();
    if (way == Way::ahead_router && misses) gate = device_gate();
    if (way == Way::router_gate) gate = host_gate();
    launch(router_kernel, 1, compute_, 2000, ring(), value, opens, gate);
    if (way == Way::event) SLUICE_CUDA_CHECK(cudaEventRecord(chosen_ = next_event(), compute_));
    if (way == Way::stream_gate)
      check(cuStreamWaitValue32(compute_, address(host_gate()), value, 0));
    if (way == Way::ahead_stream)
      check(cuStreamWaitValue32(compute_, address(device_gate()), value, 0));
  }
  void enqueue_experts() {
    for (int i = 0; i < 2; ++i) launch(work_kernel, 264, compute_, 8000);
    finish_layer();
  }
  void finish_layer() {
    launch(work_kernel, 16, compute_, 2000);
    SLUICE_CUDA_CHECK(cudaEventRecord(next_event(), compute_));
  }

  void answer(Way way, unsigned value, bool misses) {
    if (way == Way::event)
      SLUICE_CUDA_CHECK(cudaEventSynchronize(chosen_));
    else
      while (static_cast<int>(*ring() - value) < 0) {
      }
    for (const Clock::time_point begin = Clock::now(); us_since(begin) < host_us_;) {
    }
    if (way == Way::event || way == Way::signal)
      return misses ? enqueue_around_copy() : enqueue_experts();
    const bool runs_ahead = way == Way::ahead_stream || way == Way::ahead_router;
    if (misses) {
      copy_expert();
      check(
          cuStreamWriteValue32(lane_, address(runs_ahead ? device_gate() : host_gate()), value, 0));
    } else if (!runs_ahead) {
      *host_gate() = value;
    }
  }
  // What is here first, then what comes.
  void enqueue_around_copy() {
    copy_expert();
    const cudaEvent_t copied = next_event();
    SLUICE_CUDA_CHECK(cudaEventRecord(copied, lane_));
    for (int i = 0; i < 2; ++i) launch(work_kernel, 264, compute_, 8000);
    SLUICE_CUDA_CHECK(cudaStreamWaitEvent(compute_, copied, 0));
    for (int i = 0; i < 2; ++i) launch(work_kernel, 132, compute_, 4000);
    finish_layer();
  }
  void copy_expert() {
    const std::size_t at = copies_++ % kSlots * kExpertBytes;
    SLUICE_CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(slots_) + at,
                                      static_cast<char*>(pinned_) + at, kExpertBytes,
                                      cudaMemcpyHostToDevice, lane_));
  }
  cudaEvent_t next_event() { return events_[next_event_++ % events_.size()]; }

  double host_us_;
  cudaStream_t compute_ = nullptr, lane_ = nullptr;
  void *pinned_ = nullptr, *slots_ = nullptr, *host_words_ = nullptr, *device_words_ = nullptr;
  std::array<cudaEvent_t, 1024> events_{};
  cudaEvent_t chosen_ = nullptr;
  std::size_t next_event_ = 0, copies_ = 0;
  unsigned value_ = 0;
};

void run(double host_us, double miss_percent) {
  std::mt19937 random(1);
  std::vector<std::vector<bool>> misses(kTokens, std::vector<bool>(kLayers));
  for (auto& token : misses)
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      token[layer] = random() % 10000 < static_cast<unsigned>(miss_percent * 100);
  Bench bench(host_us);
  double without = 0;
  for (const auto& [way, name] : kWays) {
    for (int i = 0; i < 2; ++i) bench.token(way, misses[0]);
    double sum = 0;
    for (const auto& token : misses) sum += bench.token(way, token);
    if (way == Way::none) without = sum;
    std::printf(
        "{\"way\": \"%s\", \"host_us\": %g, \"miss_percent\": %g, \"token_us\": %.1f, "
        "\"more_us_a_layer\": %.2f}\n",
        name, host_us, miss_percent, sum / kTokens, (sum - without) / kTokens / kLayers);
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    sluice::run(argc > 1 ? std::atof(argv[1]) : 3, argc > 2 ? std::atof(argv[2]) : 14);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wait_bench: %s\n", error.what());
    return 1;
  }
}
