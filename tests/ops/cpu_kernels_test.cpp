// What the CPU kernels promise beyond all others: errors for what is out of range, and results that
// no number of threads changes.
#include "models/ops/cpu_kernels.hpp"

#include <tbb/global_control.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/catch.hpp"
#include "tests/ops/paged_cache.hpp"
#include "tests/ops/reference.hpp"

namespace sluice::test {
namespace {

Tensor product(const Tensor& x, const Tensor& weight, std::uint32_t rows, std::uint32_t n,
               std::uint32_t k) {
  Tensor out(DType::bf16, std::size_t{rows} * n);
  LinearArgs args;
  args.x = x.data();
  args.weight = weight.data();
  args.out = out.data();
  args.rows = rows;
  args.n = n;
  args.k = k;
  CpuKernels().linear(args, nullptr);
  return out;
}

}  // namespace

TEST_CASE("linear does not depend on the number of threads", "[linear]") {
  Seeded random(20260104);
  CAPTURE(random.seed);
  constexpr std::uint32_t kOut = 1000, kIn = 576;
  const Tensor weight = Tensor::random(DType::bf16, kOut * kIn, random.rng);
  for (const std::uint32_t rows : {1u, 3u, 200u}) {
    const Tensor x = Tensor::random(DType::bf16, rows * kIn, random.rng);
    const Tensor many = product(x, weight, rows, kOut, kIn);
    const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
    CHECK(same_bytes(product(x, weight, rows, kOut, kIn), many));
  }
}

TEST_CASE("attention does not depend on the number of threads", "[attention]") {
  Seeded random(20260135);
  CAPTURE(random.seed);
  constexpr std::uint32_t kHeads = 6, kKvHeads = 2, kHeadDim = 64, kRows = 401;
  PagedCache cache(DType::bf16, 1, 8, kKvHeads, kHeadDim, random);
  cache.fill_random(0, kRows, random);
  const Tensor qkv =
      Tensor::random(DType::bf16, kRows * (kHeads + 2 * kKvHeads) * kHeadDim, random.rng);
  const std::vector<std::int32_t> sequences(kRows, 0);
  std::vector<std::int32_t> positions(kRows);
  std::iota(positions.begin(), positions.end(), 0);
  const auto attend = [&] {
    Tensor out(DType::bf16, kRows * kHeads * kHeadDim);
    AttentionArgs args;
    args.qkv = qkv.data();
    args.rows = {nullptr, sequences.data(), positions.data(), kRows};
    args.heads = kHeads;
    args.scale = 0.125f;
    args.kv = cache.layer();
    args.out = out.data();
    CpuKernels().attention(args, nullptr);
    return out;
  };
  const Tensor many = attend();
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  CHECK(same_bytes(attend(), many));
}

TEST_CASE("embed refuses tokens beyond the table", "[elementwise]") {
  const Tensor table(DType::bf16, 7 * 37);
  const auto embed = [&](const std::vector<std::int32_t>& tokens) {
    Tensor out(DType::bf16, tokens.size() * 37);
    EmbedArgs args;
    args.rows.tokens = tokens.data();
    args.rows.count = static_cast<std::uint32_t>(tokens.size());
    args.table = table.data();
    args.out = out.data();
    args.vocab = 7;
    args.hidden = 37;
    CpuKernels().embed(args, nullptr);
  };
  CHECK_THROWS_WITH(embed({0, 7}), "row 1 is token 7: the vocabulary has 7");
  CHECK_THROWS_WITH(embed({-1}), "row 0 is token -1: the vocabulary has 7");
}

TEST_CASE("rope_store refuses positions and pages out of range", "[rope]") {
  Seeded random(20260122);
  PagedCache cache(DType::bf16, 1, 2, 1, 16, random);
  Tensor qkv = Tensor::random(DType::bf16, 4 * 16, random.rng);
  const std::vector<float> angles(128 * 8, 0.5f);
  const Tensor before = cache.pages();
  const auto store = [&](std::int32_t sequence, std::int32_t position) {
    RopeStoreArgs args;
    args.qkv = qkv.data();
    args.rows = {nullptr, &sequence, &position, 1};
    args.heads = 2;
    args.cos = args.sin = angles.data();
    args.context = 128;
    args.kv = cache.layer();
    CpuKernels().rope_store(args, nullptr);
  };
  CHECK_THROWS_WITH(store(0, 128),
                    "row 0 is position 128 of sequence 0: the KV cache has 1 sequences of 128");
  CHECK_THROWS_WITH(store(1, 3),
                    "row 0 is position 3 of sequence 1: the KV cache has 1 sequences of 128");
  CHECK(same_bytes(cache.pages(), before));
}

TEST_CASE("sample refuses logits that are not finite and moves no sequence on", "[sample]") {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const std::vector<float> logits{1, 2, 3, 4, bad, 6};
    const std::vector<std::int32_t> sequences{1, 0};
    const std::vector<SamplingParams> params(2);
    std::vector<std::int32_t> next(2, -1), lengths(2, 10), generated(2, 0), chosen(2, -1);
    SampleArgs args;
    args.logits = logits.data();
    args.type = DType::f32;
    args.rows = 2;
    args.vocab = 3;
    args.sequences = sequences.data();
    args.params = params.data();
    args.next_tokens = next.data();
    args.lengths = lengths.data();
    args.generated = generated.data();
    args.chosen = chosen.data();
    CHECK_THROWS_WITH(
        CpuKernels().sample(args, nullptr),
        "the logits of sequence 0 at position 10 are not finite (the first is token "
        "1 of 3): the model's f32 activations overflowed, or its weights are damaged");
    CHECK(next == std::vector<std::int32_t>{-1, -1});
    CHECK(lengths == std::vector<std::int32_t>{10, 10});
  }
}

}  // namespace sluice::test
