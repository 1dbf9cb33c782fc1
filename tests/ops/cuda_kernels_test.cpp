// The CUDA kernels: operations in one have the bits of their parts, a row has the same bits in any
// company, and products are right. Skipped where there is no GPU.
#include <cuda_runtime.h>

#include <cstring>
#include <numeric>

#include "core/device/cuda_device.hpp"
#include "models/ops/cuda_kernels.hpp"
#include "tests/catch.hpp"
#include "tests/ops/reference.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kHeads = 8, kKvHeads = 2, kHeadDim = 128, kContext = 700;
constexpr std::uint32_t kColumns = (kHeads + 2 * kKvHeads) * kHeadDim;

// A GPU, if there is one, and memory on it.
class Gpu {
 public:
  static bool is_here() {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
    fmt::print("SKIPPED: there is no NVIDIA GPU\n");
    return false;
  }

  std::byte* put(const void* from, std::size_t bytes) {
    memory_.emplace_back(*device_, Buffer::Where::device, bytes, "a test's data");
    REQUIRE(cudaMemcpy(memory_.back().data(), from, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
    // It may be under way still, and the kernels' stream does not wait for it.
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return memory_.back().data();
  }
  std::byte* put(const Tensor& tensor) { return put(tensor.data(), tensor.bytes().size()); }
  template <typename T>
  T* put(const std::vector<T>& values) {
    return reinterpret_cast<T*>(put(values.data(), values.size() * sizeof(T)));
  }
  // `bytes` of NaNs.
  std::byte* room(std::size_t bytes) {
    return put(std::vector<std::byte>(bytes, std::byte{0xff}).data(), bytes);
  }
  std::vector<std::byte> get(const void* from, std::size_t bytes) {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<std::byte> out(bytes);
    REQUIRE(cudaMemcpy(out.data(), from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    return out;
  }
  IKernels& kernels() { return *kernels_; }
  cudaStream_t stream() const { return stream_; }

  Gpu() { REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess); }
  ~Gpu() { cudaStreamDestroy(stream_); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

 private:
  std::unique_ptr<IDevice> device_ = make_cuda_device();
  std::vector<Buffer> memory_;
  std::unique_ptr<IKernels> kernels_ = make_cuda_kernels(*device_);
  cudaStream_t stream_ = nullptr;
};

struct Shape {
  std::uint32_t n, k;
};
// More groups of rows than a GPU has multiprocessors, ends that no tile divides, a k of many rounds.
constexpr Shape kShapes[] = {{6144 + 8, 64}, {72, 576}, {48, 2056}, {256, 5120}, {16, 12288}};

}  // namespace

TEST_CASE("a norm and what follows it have the bits of the parts", "[cuda]") {
  if (!Gpu::is_here()) return;
  Seeded random{20261129};
  for (const DType type : kTypes)
    for (const Shape shape : kShapes)
      for (const std::uint32_t rows : {1u, 3u, 8u, 13u, 16u}) {
        CAPTURE(name_of(type), shape.n, shape.k, rows, random.seed);
        Gpu gpu;
        const auto values = [&](std::size_t count, double scale) {
          return gpu.put(Tensor::random(type, count, random.rng, scale));
        };
        RmsNormArgs norm{.x = values(std::size_t{rows} * shape.k, 1),
                         .weight = values(shape.k, 1),
                         .weight_type = type,
                         .out = gpu.room(std::size_t{rows} * shape.k * size_of(type)),
                         .type = type,
                         .rows = rows,
                         .cols = shape.k,
                         .eps = 1e-6f};
        const std::size_t bytes = std::size_t{rows} * shape.n * size_of(type);
        LinearArgs linear{.x = norm.out,
                          .weight = values(std::size_t{shape.n} * shape.k, 0.05),
                          .weight_type = type,
                          .bias = values(shape.n, 1),
                          .bias_type = type,
                          .out = gpu.room(bytes),
                          .type = type,
                          .rows = rows,
                          .n = shape.n,
                          .k = shape.k};
        SiluMulArgs silu{.gate_up = linear.out,
                         .out = gpu.room(bytes / 2),
                         .type = type,
                         .rows = rows,
                         .inter = shape.n / 2};
        gpu.kernels().IKernels::gated({norm, linear, silu}, gpu.stream());
        const auto product = gpu.get(linear.out, bytes), gated = gpu.get(silu.out, bytes / 2);

        linear.out = gpu.room(bytes);
        silu.gate_up = linear.out;
        silu.out = gpu.room(bytes / 2);
        gpu.kernels().norm_linear({norm, linear}, gpu.stream());
        gpu.kernels().gated({norm, linear, silu}, gpu.stream());
        CHECK(gpu.get(silu.out, bytes / 2) == gated);
        gpu.kernels().norm_linear({norm, linear}, gpu.stream());
        CHECK(gpu.get(linear.out, bytes) == product);

        // The last row alone.
        const auto row = [&](const void* of, std::uint32_t width) {
          return static_cast<const std::byte*>(of) + std::size_t{rows - 1} * width * size_of(type);
        };
        norm.x = row(norm.x, shape.k);
        norm.rows = linear.rows = 1;
        linear.out = gpu.room(bytes);
        gpu.kernels().norm_linear({norm, linear}, gpu.stream());
        const auto alone = gpu.get(linear.out, bytes / rows);
        CHECK(std::equal(alone.begin(), alone.end(), product.end() - bytes / rows));
      }
}

TEST_CASE("a product of few rows is right", "[cuda]") {
  if (!Gpu::is_here()) return;
  Seeded random{20261130};
  for (const DType type : {DType::bf16, DType::f16})
    for (const Shape shape : kShapes)
      for (const std::uint32_t rows : {1u, 11u}) {
        CAPTURE(name_of(type), shape.n, shape.k, rows, random.seed);
        Gpu gpu;
        const Tensor x = Tensor::random(type, std::size_t{rows} * shape.k, random.rng);
        const Tensor weight =
            Tensor::random(type, std::size_t{shape.n} * shape.k, random.rng, 0.05);
        Tensor y = Tensor::random(type, std::size_t{rows} * shape.n, random.rng);
        const Tensor before = y;
        void* const residual = gpu.put(y);
        gpu.kernels().linear({.x = gpu.put(x),
                              .weight = gpu.put(weight),
                              .weight_type = type,
                              .residual = residual,
                              .type = type,
                              .rows = rows,
                              .n = shape.n,
                              .k = shape.k},
                             gpu.stream());
        const auto bytes = gpu.get(residual, y.bytes().size());
        std::memcpy(y.data(), bytes.data(), bytes.size());
        double worst = 0;
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t n = 0; n < shape.n; ++n) {
            double sum = 0, absolute = 0;
            for (std::size_t i = 0; i < shape.k; ++i) {
              const double term = x.get(r * shape.k + i) * weight.get(n * shape.k + i);
              sum += term;
              absolute += std::abs(term);
            }
            // The sum's own error, a unit in its last place, and one in that of the result.
            const double expected = before.get(r * shape.n + n) + round_to(type, sum);
            const double allowed =
                1e-6 * absolute + 1.01 * ulp(type, sum) + 0.51 * ulp(type, expected);
            worst = std::max(worst, std::abs(y.get(r * shape.n + n) - expected) / allowed);
          }
        CHECK(worst <= 1);
      }
}

TEST_CASE("rotation and attention have the bits of the parts", "[cuda]") {
  if (!Gpu::is_here()) return;
  Seeded random{20261201};
  const std::vector<std::int32_t> positions{0, 1, 63, 64, 127, 128, 255, 256, 400, 699};
  const auto rows = static_cast<std::uint32_t>(positions.size());
  for (const DType type : kTypes)
    for (const bool norm : {false, true}) {
      CAPTURE(name_of(type), norm, random.seed);
      Gpu gpu;
      const auto values = [&](std::size_t count, double scale) {
        return Tensor::random(type, count, random.rng, scale);
      };
      const std::uint32_t pages = (kContext + kPageTokens - 1) / kPageTokens;
      std::vector<std::int32_t> table(rows * pages), sequences(rows);
      std::iota(table.rbegin(), table.rend(), 0);
      std::iota(sequences.begin(), sequences.end(), 0);
      std::vector<float> angles(kContext * kHeadDim / 2);
      for (std::size_t i = 0; i < angles.size(); ++i) angles[i] = float(std::sin(0.1 * double(i)));
      KvLayer kv;
      kv.page_bytes = std::uint64_t{2} * kKvHeads * kPageTokens * kHeadDim * size_of(type);
      kv.page_count = table.size();
      kv.page_table = gpu.put(table);
      kv.sequences = rows;
      kv.pages_per_sequence = pages;
      kv.kv_heads = kKvHeads;
      kv.head_dim = kHeadDim;
      const Tensor cache = values(kv.page_count * kv.page_bytes / size_of(type), 1);
      const Tensor qkv = values(std::size_t{rows} * kColumns, 3);
      const RowIndex index{nullptr, gpu.put(sequences), gpu.put(positions), rows};
      const std::byte* weight = norm ? gpu.put(values(kHeadDim, 1)) : nullptr;
      const float* cos = gpu.put(angles);

      const std::size_t out_bytes = std::size_t{rows} * kHeads * kHeadDim * size_of(type);
      const auto run = [&](bool in_one, std::uint32_t longest) {
        kv.pages = gpu.put(cache);
        void* const x = gpu.put(qkv);
        void* const out = gpu.room(out_bytes);
        const RopeAttentionArgs args{{.qkv = x,
                                      .type = type,
                                      .rows = index,
                                      .heads = kHeads,
                                      .q_norm = weight,
                                      .k_norm = weight,
                                      .norm_type = type,
                                      .eps = 1e-6f,
                                      .cos = cos,
                                      .sin = cos,
                                      .context = kContext,
                                      .kv = kv},
                                     {.qkv = x,
                                      .type = type,
                                      .rows = index,
                                      .heads = kHeads,
                                      .scale = 0.09f,
                                      .kv = kv,
                                      .out = out,
                                      .longest = longest}};
        in_one ? gpu.kernels().rope_attention(args, gpu.stream())
               : gpu.kernels().IKernels::rope_attention(args, gpu.stream());
        return std::pair{gpu.get(out, out_bytes), gpu.get(kv.pages, kv.page_count * kv.page_bytes)};
      };
      const auto parts = run(false, 0);
      for (const std::uint32_t longest : {0u, 700u}) CHECK((run(true, longest) == parts));
    }
}

}  // namespace sluice::test
