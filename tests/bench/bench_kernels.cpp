// Measures the CPU kernels and prints one JSON object a line. A matrix-vector product stands beside
// a read pass over the same bytes by the same threads; both walk over copies of the matrix that
// together exceed the caches, as the layers of a model do.
//
//   bench_kernels [--threads N] [--seconds S]
//                 [linear|quantised|prefill|attention|elementwise|sample]...
#include <fmt/core.h>
#include <tbb/cache_aligned_allocator.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/float16.hpp"
#include "core/parallel.hpp"
#include "core/weights/encoding.hpp"
#include "models/ops/cpu_kernels.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kBeyondCaches = 256u << 20;  // bytes

struct Options {
  std::size_t threads = std::thread::hardware_concurrency();
  double seconds = 0.5;  // of each measurement
  std::vector<std::string> parts;
};

// Aligned as a device's memory is.
using Bytes = std::vector<std::byte, tbb::cache_aligned_allocator<std::byte>>;

// Random values of `type`, about 1/32 in size.
Bytes random_values(DType type, std::uint64_t count, std::uint64_t seed) {
  Bytes bytes(count * size_of(type));
  std::uint64_t state = seed * 2 + 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float value = static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-36f;
    if (type == DType::f32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] =
          type == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
    }
  }
  return bytes;
}

// Copies of a matrix, one after the other, each with its codes and then its scales.
class Matrices {
 public:
  Matrices(Encoding encoding, DType type, std::uint64_t n, std::uint64_t k, std::uint64_t least)
      : encoding_(encoding), type_(type) {
    const bool native = encoding == Encoding::native;
    code_bytes_ = n * (native ? k * size_of(type) : code_row_bytes(encoding, k));
    const std::uint64_t scale_bytes = native ? 0 : n * scale_row_bytes(encoding, k);
    bytes_ = code_bytes_ + scale_bytes;
    count_ = std::max<std::uint64_t>(2, least / bytes_);
    if (native) {
      all_ = random_values(type, count_ * n * k, 1);
      return;
    }
    // Any bytes are codes; scales are of two bytes or of four.
    all_ = random_values(DType::f32, (count_ * bytes_ + 3) / 4, 1);
    const DType scale_type = encoding == Encoding::int4 ? DType::f16 : DType::f32;
    const Bytes scales = random_values(scale_type, scale_bytes / size_of(scale_type), 2);
    for (std::uint64_t copy = 0; copy < count_; ++copy)
      std::ranges::copy(scales,
                        all_.begin() + static_cast<std::ptrdiff_t>(copy * bytes_ + code_bytes_));
  }

  std::uint64_t bytes() const { return bytes_; }
  std::string_view name() const {
    return encoding_ == Encoding::native ? name_of(type_) : name_of(encoding_);
  }
  const std::byte* copy(std::size_t i) const { return all_.data() + i % count_ * bytes_; }
  void put(std::size_t i, LinearArgs& args) const {
    args.weight = copy(i);
    args.weight_type = type_;
    args.encoding = encoding_;
    args.scales = args.weight + code_bytes_;
  }

 private:
  Encoding encoding_;
  DType type_;
  std::uint64_t code_bytes_ = 0, bytes_ = 0, count_ = 0;
  Bytes all_;
};

// The shortest time of one call of each, in seconds: they take turns, so that whatever else the
// machine does meets all of them.
template <std::size_t N>
std::array<double, N> measure(double seconds,
                              const std::array<std::function<void(std::size_t)>, N>& calls) {
  using Clock = std::chrono::steady_clock;
  std::array<double, N> best;
  best.fill(std::numeric_limits<double>::infinity());
  const auto start = Clock::now();
  for (std::size_t i = 0;
       i < 5 || Clock::now() - start < std::chrono::duration<double>(seconds * N); ++i) {
    for (std::size_t c = 0; c < N; ++c) {
      const auto begin = Clock::now();
      calls[c](i);
      best[c] = std::min(best[c], std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  return best;
}

double measure(double seconds, const std::function<void(std::size_t)>& call) {
  return measure<1>(seconds, {call})[0];
}

// Reads every byte once.
std::uint64_t read_pass(const std::byte* data, std::uint64_t bytes) {
  constexpr std::uint64_t kChunk = 64u << 10;
  std::vector<std::uint64_t> sums((bytes + kChunk - 1) / kChunk);
  parallel_for(sums.size(), [&](std::size_t chunk) {
    const auto* from = reinterpret_cast<const std::uint64_t*>(data + chunk * kChunk);
    const std::uint64_t words = std::min(kChunk, bytes - chunk * kChunk) / sizeof(std::uint64_t);
    std::uint64_t lanes[32] = {};
    std::uint64_t i = 0;
    for (; i + 32 <= words; i += 32) {
      for (std::uint64_t j = 0; j < 32; ++j) lanes[j] += from[i + j];
    }
    for (; i < words; ++i) lanes[0] += from[i];
    sums[chunk] = std::accumulate(std::begin(lanes), std::end(lanes), std::uint64_t{0});
  });
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {}

  void matrix_vector(DType weight_type, DType type, std::uint32_t n, std::uint32_t k,
                     std::uint32_t rows, Encoding encoding = Encoding::native) {
    const Matrices weights(encoding, weight_type, n, k, kBeyondCaches);
    const std::uint64_t bytes = weights.bytes();
    const auto x = random_values(type, std::uint64_t{rows} * k, 2);
    Bytes out(std::uint64_t{rows} * n * size_of(type));
    LinearArgs args;
    args.x = x.data();
    args.out = out.data();
    args.type = type;
    args.rows = rows;
    args.n = n;
    args.k = k;
    std::uint64_t sum = 0;
    const auto [product, read] =
        measure<2>(options_.seconds,
                   {[&](std::size_t i) {
                      weights.put(2 * i, args);
                      kernels_.linear(args, nullptr);
                    },
                    [&](std::size_t i) { sum += read_pass(weights.copy(2 * i + 1), bytes); }});
    fmt::print(
        "{{\"bench\": \"linear\", \"weight\": \"{}\", \"type\": \"{}\", \"n\": {}, \"k\": {}, "
        "\"rows\": {}, \"threads\": {}, \"gbps\": {:.2f}, \"read_gbps\": {:.2f}, "
        "\"percent_of_read\": {:.1f}, \"us\": {:.1f}, \"checksum\": {}}}\n",
        weights.name(), name_of(type), n, k, rows, options_.threads,
        static_cast<double>(bytes) / product * 1e-9, static_cast<double>(bytes) / read * 1e-9,
        read / product * 100, product * 1e6, sum % 1000);
  }

  void prefill(DType weight_type, DType type, std::uint32_t n, std::uint32_t k, std::uint32_t rows,
               Encoding encoding = Encoding::native) {
    const Matrices weights(encoding, weight_type, n, k, 0);
    const auto x = random_values(type, std::uint64_t{rows} * k, 2);
    Bytes out(std::uint64_t{rows} * n * size_of(type));
    LinearArgs args;
    args.x = x.data();
    weights.put(0, args);
    args.out = out.data();
    args.type = type;
    args.rows = rows;
    args.n = n;
    args.k = k;
    const double seconds =
        measure(options_.seconds, [&](std::size_t) { kernels_.linear(args, nullptr); });
    fmt::print(
        "{{\"bench\": \"prefill\", \"weight\": \"{}\", \"type\": \"{}\", \"n\": {}, \"k\": {}, "
        "\"rows\": {}, \"threads\": {}, \"gflops\": {:.1f}, \"ms\": {:.2f}}}\n",
        weights.name(), name_of(type), n, k, rows, options_.threads, 2e-9 * rows * n * k / seconds,
        seconds * 1e3);
  }

  // `rows` rows at the end of a sequence of `context` positions.
  void attention(DType type, std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t head_dim,
                 std::uint32_t context, std::uint32_t rows) {
    const std::uint32_t pages = (context + kPageTokens - 1) / kPageTokens;
    const std::uint64_t page_elements = std::uint64_t{2} * kv_heads * kPageTokens * head_dim;
    auto cache = random_values(type, page_elements * pages, 3);
    const auto qkv =
        random_values(type, std::uint64_t{rows} * (heads + 2 * kv_heads) * head_dim, 4);
    Bytes out(std::uint64_t{rows} * heads * head_dim * size_of(type));
    std::vector<std::int32_t> table(pages), sequences(rows), positions(rows);
    std::iota(table.begin(), table.end(), 0);
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(context - rows));
    AttentionArgs args;
    args.qkv = qkv.data();
    args.type = type;
    args.rows = {nullptr, sequences.data(), positions.data(), rows};
    args.heads = heads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    args.kv = {cache.data(), page_elements * size_of(type), pages, table.data(), 1, pages, kv_heads,
               head_dim};
    args.out = out.data();
    const double seconds =
        measure(options_.seconds, [&](std::size_t) { kernels_.attention(args, nullptr); });
    const double attended = (context - (rows - 1) / 2.0) * rows;
    fmt::print(
        "{{\"bench\": \"attention\", \"type\": \"{}\", \"heads\": {}, \"kv_heads\": {}, "
        "\"head_dim\": {}, \"context\": {}, \"rows\": {}, \"threads\": {}, \"us\": {:.1f}, "
        "\"kv_gbps\": {:.2f}, \"gflops\": {:.1f}}}\n",
        name_of(type), heads, kv_heads, head_dim, context, rows, options_.threads, seconds * 1e6,
        static_cast<double>(cache.size()) / seconds * 1e-9,
        4e-9 * attended * heads * head_dim / seconds);
  }

  void elementwise(DType type, std::uint32_t rows, std::uint32_t cols) {
    const auto x = random_values(type, std::uint64_t{rows} * cols * 2, 5);
    const auto weight = random_values(type, cols, 6);
    Bytes out(std::uint64_t{rows} * cols * size_of(type));
    const RmsNormArgs norm{x.data(), weight.data(), type, out.data(), type, rows, cols, 1e-6f};
    const SiluMulArgs silu{x.data(), out.data(), type, rows, cols};
    const double norm_s =
        measure(options_.seconds, [&](std::size_t) { kernels_.rms_norm(norm, nullptr); });
    const double silu_s =
        measure(options_.seconds, [&](std::size_t) { kernels_.silu_mul(silu, nullptr); });
    fmt::print(
        "{{\"bench\": \"elementwise\", \"type\": \"{}\", \"rows\": {}, \"cols\": {}, "
        "\"threads\": {}, \"rms_norm_us\": {:.2f}, \"silu_mul_us\": {:.2f}}}\n",
        name_of(type), rows, cols, options_.threads, norm_s * 1e6, silu_s * 1e6);
  }

  void sample(std::uint32_t vocab, const SamplingParams& params, const char* how) {
    const auto logits = random_values(DType::f32, vocab, 7);
    std::vector<float> scaled(vocab);
    for (std::uint32_t i = 0; i < vocab; ++i) {
      scaled[i] = reinterpret_cast<const float*>(logits.data())[i] * 128;
    }
    std::int32_t sequence = 0, next = 0, length = 0, generated = 0, chosen = 0;
    SampleArgs args;
    args.logits = scaled.data();
    args.type = DType::f32;
    args.rows = 1;
    args.vocab = vocab;
    args.sequences = &sequence;
    args.params = &params;
    args.next_tokens = &next;
    args.lengths = &length;
    args.generated = &generated;
    args.chosen = &chosen;
    const double seconds =
        measure(options_.seconds, [&](std::size_t) { kernels_.sample(args, nullptr); });
    fmt::print("{{\"bench\": \"sample\", \"how\": \"{}\", \"vocab\": {}, \"us\": {:.1f}}}\n", how,
               vocab, seconds * 1e6);
  }

 private:
  Options options_;
  CpuKernels kernels_;
};

// Of matrices, n and k.
constexpr std::pair<std::uint32_t, std::uint32_t> kShapes[] = {
    {576, 576}, {1536, 576}, {49152, 576}, {4096, 4096}, {12288, 4096}, {4096, 12288}};

void run(const Options& options) {
  const auto wanted = [&](std::string_view part) {
    return options.parts.empty() ||
           std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
  };
  Bench bench(options);
  if (wanted("linear")) {
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      for (const auto& [n, k] : kShapes) bench.matrix_vector(type, type, n, k, 1);
    }
    bench.matrix_vector(DType::bf16, DType::f32, 12288, 4096, 1);
    for (const std::uint32_t rows : {2u, 4u, 8u, 16u}) {
      bench.matrix_vector(DType::bf16, DType::bf16, 12288, 4096, rows);
    }
  }
  if (wanted("quantised")) {
    for (const Encoding encoding : {Encoding::int8, Encoding::int4}) {
      for (const auto& [n, k] : kShapes)
        bench.matrix_vector(DType::bf16, DType::bf16, n, k, 1, encoding);
      for (const std::uint32_t rows : {2u, 4u, 8u, 16u})
        bench.matrix_vector(DType::bf16, DType::bf16, 12288, 4096, rows, encoding);
      bench.prefill(DType::bf16, DType::bf16, 4096, 4096, 512, encoding);
    }
  }
  if (wanted("prefill")) {
    for (const std::uint32_t rows : {16u, 64u, 512u, 2048u}) {
      bench.prefill(DType::bf16, DType::bf16, 1536, 576, rows);
      bench.prefill(DType::bf16, DType::bf16, 4096, 4096, rows);
    }
    bench.prefill(DType::f32, DType::f32, 4096, 4096, 512);
    bench.prefill(DType::f16, DType::f16, 4096, 4096, 512);
  }
  if (wanted("attention")) {
    for (const DType type : {DType::bf16, DType::f32}) {
      bench.attention(type, 9, 3, 64, 512, 1);
      bench.attention(type, 32, 8, 128, 4096, 1);
      bench.attention(type, 9, 3, 64, 512, 512);
      bench.attention(type, 32, 8, 128, 2048, 2048);
    }
  }
  if (wanted("elementwise")) {
    bench.elementwise(DType::bf16, 1, 1536);
    bench.elementwise(DType::bf16, 1, 12288);
    bench.elementwise(DType::bf16, 512, 12288);
  }
  if (wanted("sample")) {
    SamplingParams params;
    bench.sample(151936, params, "greedy");
    params.temperature = 0.7f;
    bench.sample(151936, params, "temperature");
    params.top_k = 20;
    params.top_p = 0.8f;
    bench.sample(151936, params, "top_k top_p");
    params.top_k = 0;
    bench.sample(151936, params, "top_p");
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--threads" && i + 1 < argc) {
      options.threads = std::stoul(argv[++i]);
    } else if (arg == "--seconds" && i + 1 < argc) {
      options.seconds = std::stod(argv[++i]);
    } else {
      options.parts.emplace_back(arg);
    }
  }
  tbb::global_control limit(tbb::global_control::max_allowed_parallelism, options.threads);
  sluice::run(options);
}
