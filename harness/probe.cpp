#include "harness/probe.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/ops/ops.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;
// A pass over this much comes from a GPU's memory.
constexpr std::uint64_t kLargeBytes = 256 * kMiB;
constexpr std::uint64_t kLargestCopy = 32 * kMiB;
// A matrix as a large model has it.
constexpr std::uint32_t kSide = 4096;
constexpr std::uint32_t kMedium = 1024;
// The least side of a matrix as a small model has it, and how long a product with such a one lasts at
// most where it may be larger.
constexpr std::uint32_t kSmall = 512;
constexpr double kSmallNs = 20e3;
// Operations of a launch queue: what the host enqueues without waiting.
constexpr std::uint32_t kQueued = 256;
constexpr double kQueuedNs = 2e6;
constexpr int kTries = 9;
// A chunk of a load, and how many times as long as what is measured the work beside it is queued for.
constexpr std::uint64_t kChunk = 4 * kMiB;
constexpr double kOutlasts = 4;

std::uint64_t host_memory_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
}

// As many that a pass over them comes from memory, whatever the host's last cache is; some hold 300 MiB.
// Whole ones of the largest copy, so that copies one behind the other end where the memory does.
std::uint64_t bytes_beyond_caches() {
  const auto cache = static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  const std::uint64_t bytes =
      std::clamp(4 * cache, kLargeBytes, std::max(kLargeBytes, host_memory_bytes() / 8));
  return bytes / kLargestCopy * kLargestCopy;
}

std::uint64_t whole_ns(double ns) {
  return static_cast<std::uint64_t>(std::llround(std::max(0.0, ns)));
}

class Prober {
 public:
  explicit Prober(IDevice& device)
      : device_(device),
        compute_(device.make_stream(Resource::compute, "probe compute")),
        lane_(device.make_stream(Resource::h2d, "probe copies")),
        ops_(device, compute_),
        large_(bytes_beyond_caches()),
        host_(device, Buffer::Where::pinned, large_, "the probe"),
        memory_(device, Buffer::Where::device, large_, "the probe"),
        rows_(device, Buffer::Where::device, 3 * kRowBytes, "the probe's rows") {
    std::fill_n(host_.data(), host_.bytes(), std::byte{0});
    transfer(Resource::h2d, 0, large_);
    ops_.upload(rows_.data(), host_.data(), rows_.bytes());
    finish();
  }

  // Copies of each size one after the other, as a lane issues them.
  RateCurve link(Resource direction) {
    RateCurve curve;
    for (const std::uint64_t bytes : {kMiB / 16, kMiB / 4, kMiB, 4 * kMiB, kLargestCopy}) {
      const std::uint64_t copies = std::clamp<std::uint64_t>(64 * kMiB / bytes, 2, kQueued);
      std::uint64_t at = 0;
      const double ns = best([&] {
        for (std::uint64_t i = 0; i < copies; ++i, at = (at + bytes) % large_)
          transfer(direction, at, bytes);
        device_.sync(device_.record(lane_));
      });
      double gbps = static_cast<double>(bytes * copies) / ns;
      // Noise must not make a larger copy arrive before a smaller one.
      if (!curve.points.empty())
        gbps = std::min(gbps, static_cast<double>(bytes) / curve.ns(curve.points.back().bytes));
      curve.points.push_back({bytes, gbps});
    }
    return curve;
  }

  // Bytes that operations read in a nanosecond, and what each costs beside: products of one row. Large
  // ones are nearly all reading; small ones, one behind the other as in a pass, are what a layer of a
  // small model is made of.
  struct Operations {
    double memory_gbps = 0, op_ns = 0;
    double compute_beside_h2d = 1, h2d_beside_compute = 1;
  };
  // The rate is what one product twice as large takes longer, so that no cost of operations, nor of the
  // host which puts them on the stream, is in it; what a small one takes beyond its bytes is such a cost.
  Operations operations() {
    const auto ns_over = [&](std::uint64_t bytes) {
      const auto n = static_cast<std::uint32_t>(bytes / (2 * kSide));
      return best_queued([&] { product(1, n, kSide, 0); });
    };
    const double whole_ns = ns_over(large_), half_ns = ns_over(large_ / 2);
    // On a machine that is disturbed both may take the same; twice the rate of the whole is more than
    // any cost of an operation can hide.
    const double ns_per_byte =
        std::max(whole_ns - half_ns, whole_ns / 4) / (static_cast<double>(large_) / 2);
    std::uint32_t side = kSmall;
    while (side < kSide && static_cast<double>(bytes_of(2 * side)) * ns_per_byte < kSmallNs)
      side *= 2;
    const std::uint64_t bytes = bytes_of(side), count = large_ / bytes;
    const std::unique_ptr<Repeated> repeated = device_.make_repeated(compute_);
    const auto pass = [&] {
      repeated->run([&] {
        for (std::uint64_t i = 0; i < count; ++i) product(1, side, side, i * bytes);
      });
    };
    const double pass_ns = best_queued(pass);
    const double op_ns =
        pass_ns / static_cast<double>(count) - static_cast<double>(bytes) * ns_per_byte;
    return {.memory_gbps = 1 / ns_per_byte,
            .op_ns = std::max(0.0, op_ns),
            .compute_beside_h2d = compute_beside_h2d(pass, pass_ns),
            .h2d_beside_compute = h2d_beside_compute(pass, pass_ns)};
  }

  double matrix_tflops() {
    const auto ns_of = [&](std::uint32_t rows) {
      return best_queued([&] { product(rows, kSide, kSide, 0); });
    };
    std::uint32_t rows = kMostRows / 4;
    double ns = ns_of(rows);
    if (ns < kQueuedNs) ns = ns_of(rows = kMostRows);  // a fast device needs more to be filled
    return 2.0 * rows * kSide * kSide / ns * 1e-3;
  }

  double enqueue_ns() {
    return best_of([&] {
             const std::uint64_t begin = device_.now_ns();
             for (std::uint32_t i = 0; i < kQueued; ++i) norm();
             const std::uint64_t end = device_.now_ns();
             finish();
             return end - begin;
           }) /
           kQueued;
  }

  // Of a record and of a wait for it on another stream, each.
  double event_ns() {
    return best_of([&] {
             norm();
             const std::uint64_t begin = device_.now_ns();
             for (std::uint32_t i = 0; i < kQueued; ++i)
               device_.wait(lane_, device_.record(compute_));
             const std::uint64_t end = device_.now_ns();
             finish();
             device_.sync(device_.record(lane_));
             return end - begin;
           }) /
           (2 * kQueued);
  }

  // What it costs to wait on the host for each copy in place of all of them, with work put behind each
  // as behind a load; without what that work slows the next copy down by. How long a waiting thread
  // takes to wake differs each time, and a token has many such waits: so this is the middle of the
  // tries and not the best.
  double sync_ns(double enqueue_ns, const Operations& operations) {
    constexpr std::uint64_t kCopies = 16, kProducts = 2;
    const std::uint64_t bytes = kProducts * bytes_of(kMedium);
    const double together_ns = best([&] {
      copy_in_turn(kCopies);
      device_.sync(device_.record(lane_));
    });
    const double one_by_one_ns = middle_of([&] {
      const std::uint64_t begin = device_.now_ns();
      for (std::uint64_t i = 0; i < kCopies; ++i) {
        transfer(Resource::h2d, i * kChunk, kChunk);
        device_.sync(device_.record(lane_));
        if (i + 1 < kCopies) products(kMedium, bytes);
      }
      const std::uint64_t end = device_.now_ns();
      finish();
      return end - begin;
    });
    const double products_ns =
        2 * kProducts * operations.op_ns + static_cast<double>(bytes) / operations.memory_gbps;
    return (one_by_one_ns - together_ns) / (kCopies - 1) - 2 * kProducts * enqueue_ns -
           (1 - operations.h2d_beside_compute) / operations.compute_beside_h2d * products_ns;
  }

  // What the host reads of the pinned memory.
  std::vector<HostRead> host_reads() {
    const auto* words = reinterpret_cast<const std::uint64_t*>(host_.data());
    return measure_host_reads({words, large_ / sizeof(std::uint64_t)});
  }

 private:
  static constexpr std::uint32_t kMostRows = 2048;
  static constexpr std::uint32_t kRow = 64;
  static constexpr std::uint64_t kRowBytes = std::uint64_t{kMostRows} * kSide * 2;

  std::byte* input() const { return rows_.data(); }
  std::byte* output() const { return rows_.data() + kRowBytes; }
  std::byte* spare() const { return rows_.data() + 2 * kRowBytes; }

  void finish() { device_.sync(device_.record(compute_)); }

  template <typename Try>
  double best_of(const Try& one) {
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTries; ++i) least = std::min(least, static_cast<double>(one()));
    return std::max(1.0, least);
  }
  template <typename Try>
  double middle_of(const Try& one) {
    std::array<double, kTries> all{};
    for (double& ns : all) ns = static_cast<double>(one());
    std::ranges::nth_element(all, all.begin() + kTries / 2);
    return std::max(1.0, all[kTries / 2]);
  }
  template <typename Work>
  double best(const Work& work) {
    return best_of([&] {
      const std::uint64_t begin = device_.now_ns();
      work();
      return device_.now_ns() - begin;
    });
  }

  // Of one of several in a queue, where one alone is too short to be measured.
  template <typename Work>
  double best_queued(const Work& work) {
    const auto ns_of = [&](int times) {
      const std::uint64_t begin = device_.now_ns();
      for (int i = 0; i < times; ++i) work();
      finish();
      return static_cast<double>(device_.now_ns() - begin);
    };
    ns_of(1);  // what is set up once
    const int times = static_cast<int>(std::clamp(kQueuedNs / ns_of(1), 1.0, 3.0));
    return best_of([&] { return ns_of(times); }) / times;
  }

  // The part of its rate that one keeps while the other goes on from before its begin to after its
  // end. Who gets a core or the memory when differs each time, so these are middles of the tries.
  template <typename Pass>
  double compute_beside_h2d(const Pass& pass, double pass_ns) {
    const int passes = static_cast<int>(std::max(1.0, kQueuedNs / pass_ns));
    const auto ns_beside = [&](std::uint64_t copies) {
      return middle_of([&] {
        copy_in_turn(copies);
        const std::uint64_t begin = device_.now_ns();
        for (int i = 0; i < passes; ++i) pass();
        finish();
        const std::uint64_t end = device_.now_ns();
        device_.sync(device_.record(lane_));
        return end - begin;
      });
    };
    const double alone_ns = ns_beside(0);
    const double copies = kOutlasts * alone_ns / copy_ns();
    return std::min(1.0, alone_ns / ns_beside(static_cast<std::uint64_t>(copies) + 1));
  }
  template <typename Pass>
  double h2d_beside_compute(const Pass& pass, double pass_ns) {
    const auto copies = static_cast<std::uint64_t>(std::max(4.0, kQueuedNs / copy_ns()));
    const auto ns_beside = [&](int passes) {
      return middle_of([&] {
        for (int i = 0; i < passes; ++i) pass();
        const std::uint64_t begin = device_.now_ns();
        copy_in_turn(copies);
        device_.sync(device_.record(lane_));
        const std::uint64_t end = device_.now_ns();
        finish();
        return end - begin;
      });
    };
    const double alone_ns = ns_beside(0);
    const int passes = static_cast<int>(kOutlasts * alone_ns / pass_ns) + 1;
    return std::min(1.0, alone_ns / ns_beside(passes));
  }
  double copy_ns() {
    return best([&] {
      copy_in_turn(1);
      device_.sync(device_.record(lane_));
    });
  }
  void copy_in_turn(std::uint64_t copies) {
    for (std::uint64_t i = 0; i < copies; ++i) transfer(Resource::h2d, i * kChunk % large_, kChunk);
  }

  void transfer(Resource direction, std::uint64_t at, std::uint64_t bytes) {
    const bool to_device = direction == Resource::h2d;
    std::byte* to = (to_device ? memory_ : host_).data() + at;
    const std::byte* from = (to_device ? host_ : memory_).data() + at;
    const std::array reads{range_of(from, bytes)}, writes{range_of(to, bytes)};
    device_.copy(
        lane_,
        {.name = "probe copy", .on = direction, .bytes = bytes, .reads = reads, .writes = writes},
        to, from, bytes);
  }

  Weights all_weights() const { return {memory_.data(), memory_.range(), Encoding::native}; }

  void product(std::uint32_t rows, std::uint32_t n, std::uint32_t k, std::uint64_t weights_at) {
    ops_.linear({.x = input(),
                 .weight = memory_.data() + weights_at,
                 .weight_type = DType::bf16,
                 .out = output(),
                 .type = DType::bf16,
                 .rows = rows,
                 .n = n,
                 .k = k},
                all_weights());
  }
  static constexpr std::uint64_t bytes_of(std::uint64_t side) { return 2 * side * side; }
  // Products over `bytes` of weights, each behind a norm; on from where the last ones were, as weights
  // that are read again and again would come from a cache.
  void products(std::uint32_t side, std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes; done += bytes_of(side)) {
      norm();
      product(1, side, side, next_weights_);
      next_weights_ += bytes_of(side);
      if (next_weights_ + bytes_of(side) > large_) next_weights_ = 0;
    }
  }
  void norm() {
    ops_.rms_norm({.x = input(),
                   .weight = memory_.data(),
                   .weight_type = DType::bf16,
                   .out = spare(),
                   .type = DType::bf16,
                   .rows = 1,
                   .cols = kRow,
                   .eps = 1e-6f},
                  all_weights());
  }

  IDevice& device_;
  const StreamId compute_, lane_;
  Ops ops_;
  const std::uint64_t large_;
  Buffer host_, memory_, rows_;
  std::uint64_t next_weights_ = 0;
};

}  // namespace

Probed probe(IDevice& device, std::string name, const std::function<void(const char*)>& say) {
  if (!device.info().executes)
    throw Error("there is nothing to measure on {}, which is simulated", device.info().name);
  Probed probed;
  Machine& machine = probed.machine;
  machine.name = std::move(name);
  machine.device_memory_bytes = device.info().memory_bytes;
  machine.host_memory_bytes = host_memory_bytes();
  Prober prober(device);
  say("the link");
  machine.h2d = prober.link(Resource::h2d);
  machine.d2h = prober.link(Resource::d2h);
  say("operations, events and waits");
  const double enqueue_ns = prober.enqueue_ns();
  machine.enqueue_ns = whole_ns(enqueue_ns);
  machine.event_ns = whole_ns(prober.event_ns());
  const auto operations = prober.operations();
  machine.sync_ns = whole_ns(prober.sync_ns(enqueue_ns, operations));
  machine.memory_gbps = operations.memory_gbps;
  machine.op_ns = whole_ns(operations.op_ns);
  machine.compute_beside_h2d = operations.compute_beside_h2d;
  machine.h2d_beside_compute = operations.h2d_beside_compute;
  say("the matrix rate");
  machine.matrix_tflops = prober.matrix_tflops();
  say("the host's memory");
  probed.host_reads = prober.host_reads();
  machine.host_read_gbps = std::ranges::max(probed.host_reads, {}, &HostRead::gbps).gbps;
  return probed;
}

}  // namespace sluice
