// The front end's declarations: what an operation touches lies in its ranges, all of it. Each
// operation runs in one arena; what it may read is found by damaging everything else.
#include "tests/ops/cpu_targets.hpp"
#include "tests/ops/declared_rig.hpp"

namespace sluice::test {
TEST_CASE("embed declares what it touches", "[ops]") {
  Rig rig;
  EmbedArgs args;
  args.rows = rig.rows();
  args.table = rig.values(kVocab * kHidden);
  args.out = rig.values(kRows * kHidden);
  args.vocab = kVocab;
  args.hidden = kHidden;
  rig.ops().embed(args);
  rig.check();
  const Recorded& op = rig.device().last();
  CHECK(size_of(op.reads) == kRows * 4 + kVocab * kHidden * 2);
  CHECK(size_of(op.writes) == kRows * kHidden * 2);
  CHECK(op.bytes == 2 * kRows * kHidden * 2);
}

TEST_CASE("rms_norm declares what it touches", "[ops]") {
  Rig rig;
  std::byte* slab = rig.values(3 * kHidden);
  RmsNormArgs args;
  args.x = rig.values(kRows * kHidden);
  args.weight = slab + 2 * kHidden;
  args.out = rig.values(kRows * kHidden);
  args.rows = kRows;
  args.cols = kHidden;
  args.eps = 1e-6f;
  rig.ops().rms_norm(args, slab_of(slab, 3 * kHidden * 2));
  rig.check();
  CHECK(size_of(rig.device().last().reads) == kRows * kHidden * 2 + 3 * kHidden * 2);
  CHECK(size_of(rig.device().last().writes) == kRows * kHidden * 2);
}

TEST_CASE("linear declares what it touches", "[ops]") {
  for (const bool residual : {false, true}) {
    for (const std::uint32_t rows : {1u, kRows, 40u}) {
      Rig rig;
      constexpr std::uint32_t kOut = 37;
      std::byte* slab = rig.values(kOut * kHidden + kOut);
      LinearArgs args;
      args.x = rig.values(rows * kHidden);
      args.weight = slab;
      args.bias = slab + kOut * kHidden * 2;
      (residual ? args.residual : args.out) = rig.values(rows * kOut);
      args.rows = rows;
      args.n = kOut;
      args.k = kHidden;
      rig.ops().linear(args, slab_of(slab, (kOut * kHidden + kOut) * 2));
      rig.check();
      const Recorded& op = rig.device().last();
      const std::uint64_t out = rows * kOut * 2;
      const std::uint64_t weights = (kOut * kHidden + kOut) * 2;
      CHECK(size_of(op.reads) == rows * kHidden * 2 + weights + (residual ? out : 0));
      CHECK(size_of(op.writes) == out);
      CHECK(op.bytes == rows * kHidden * 2 + weights + (residual ? 2 : 1) * out);
      CHECK(op.flops == 2u * rows * kOut * kHidden);
    }
  }
}

TEST_CASE("rope_store declares what it touches", "[ops]") {
  for (const bool norm : {false, true}) {
    Rig rig;
    RopeStoreArgs args;
    args.qkv = rig.values(kRows * kColumns);
    args.rows = rig.rows();
    args.heads = kHeads;
    std::byte* slab = rig.values(2 * kHeadDim);
    if (norm) {
      args.q_norm = slab;
      args.k_norm = slab + kHeadDim * 2;
    }
    args.eps = 1e-6f;
    args.cos = rig.ints(std::vector<float>(kContext * kHeadDim / 2, 0.8f));
    args.sin = rig.ints(std::vector<float>(kContext * kHeadDim / 2, 0.6f));
    args.context = kContext;
    args.kv = rig.kv();
    rig.ops().rope_store(args, slab_of(slab, 2 * kHeadDim * 2));
    rig.check();
    const Recorded& op = rig.device().last();
    CHECK(size_of(op.reads) == kRows * kColumns * 2 + kRows * 8 + kContext * kHeadDim * 4 +
                                   kSequences * kPages * 4 + (norm ? kHeadDim * 4 : 0));
    CHECK(size_of(op.writes) == kRows * kColumns * 2 + args.kv.page_count * args.kv.page_bytes);
  }
}

TEST_CASE("attention declares what it touches", "[ops]") {
  Rig rig;
  AttentionArgs args;
  args.qkv = rig.values(kRows * kColumns);
  args.rows = rig.rows();
  args.heads = kHeads;
  args.scale = 0.25f;
  args.kv = rig.kv();
  args.out = rig.values(kRows * kHeads * kHeadDim);
  args.attended = 64 + 65 + 1 + 2 + 100;
  args.cached = 65 + 2 + 100;
  rig.ops().attention(args);
  rig.check();
  const Recorded& op = rig.device().last();
  CHECK(size_of(op.reads) == kRows * kColumns * 2 + kRows * 8 + kSequences * kPages * 4 +
                                 args.kv.page_count * args.kv.page_bytes);
  CHECK(size_of(op.writes) == kRows * kHeads * kHeadDim * 2);
  CHECK(op.flops == 4u * 232 * kHeads * kHeadDim);
  CHECK(op.bytes == 2u * kRows * kHeads * kHeadDim * 2 + 2u * 167 * kKvHeads * kHeadDim * 2);
  args.attended = 4;
  CHECK_THROWS_AS(rig.ops().attention(args), Error);
}

TEST_CASE("silu_mul declares what it touches", "[ops]") {
  Rig rig;
  SiluMulArgs args;
  args.gate_up = rig.values(kRows * 2 * kHidden);
  args.out = rig.values(kRows * kHidden);
  args.rows = kRows;
  args.inter = kHidden;
  rig.ops().silu_mul(args);
  rig.check();
  CHECK(size_of(rig.device().last().reads) == kRows * 2 * kHidden * 2);
  CHECK(size_of(rig.device().last().writes) == kRows * kHidden * 2);
}

TEST_CASE("a norm and a product in one declare what they touch", "[ops]") {
  Rig rig;
  constexpr std::uint32_t kOut = 2 * kHidden;
  std::byte* slab = rig.values(kOut * kHidden + kHidden);
  const Weights weights = slab_of(slab, (kOut * kHidden + kHidden) * 2);
  NormLinearArgs args;
  args.norm.x = rig.values(kRows * kHidden);
  args.norm.weight = slab + kOut * kHidden * 2;
  args.norm.out = rig.values(kRows * kHidden);
  args.norm.rows = kRows;
  args.norm.cols = kHidden;
  args.linear.x = args.norm.out;
  args.linear.weight = slab;
  args.linear.out = rig.values(kRows * kOut);
  args.linear.rows = kRows;
  args.linear.n = kOut;
  args.linear.k = kHidden;
  rig.ops().norm_linear(args, weights);
  rig.check();
  CHECK(size_of(rig.device().last().reads) == 2 * kRows * kHidden * 2 + weights.range.size);
  CHECK(size_of(rig.device().last().writes) == kRows * kHidden * 2 + kRows * kOut * 2);

  GatedArgs gated{args.norm, args.linear, {}};
  gated.silu.gate_up = args.linear.out;
  gated.silu.out = rig.values(kRows * kHidden);
  gated.silu.rows = kRows;
  gated.silu.inter = kHidden;
  rig.ops().gated(gated, weights);
  rig.check();
  CHECK(size_of(rig.device().last().writes) == 2 * kRows * kHidden * 2 + kRows * kOut * 2);
  CHECK(rig.device().last().flops ==
        4u * kRows * kHidden + 2u * kRows * kOut * kHidden + 5u * kRows * kHidden);
}

TEST_CASE("rotation and attention in one declare what they touch", "[ops]") {
  Rig rig;
  RopeAttentionArgs args;
  args.rope.qkv = rig.values(kRows * kColumns);
  args.rope.rows = rig.rows();
  args.rope.heads = kHeads;
  std::byte* slab = rig.values(2 * kHeadDim);
  args.rope.q_norm = slab;
  args.rope.k_norm = slab + kHeadDim * 2;
  args.rope.cos = rig.ints(std::vector<float>(kContext * kHeadDim / 2, 0.8f));
  args.rope.sin = rig.ints(std::vector<float>(kContext * kHeadDim / 2, 0.6f));
  args.rope.context = kContext;
  args.rope.kv = rig.kv();
  args.attention.qkv = args.rope.qkv;
  args.attention.rows = args.rope.rows;
  args.attention.heads = kHeads;
  args.attention.scale = 0.25f;
  args.attention.kv = args.rope.kv;
  args.attention.out = rig.values(kRows * kHeads * kHeadDim);
  args.attention.attended = 64 + 65 + 1 + 2 + 100;
  args.attention.cached = 65 + 2 + 100;
  rig.ops().rope_attention(args, slab_of(slab, 2 * kHeadDim * 2));
  rig.check();
  const std::uint64_t pages = args.rope.kv.page_count * args.rope.kv.page_bytes;
  CHECK(size_of(rig.device().last().writes) ==
        kRows * kColumns * 2 + pages + kRows * kHeads * kHeadDim * 2);
}

TEST_CASE("sample declares what it touches", "[ops]") {
  Rig rig;
  SampleArgs args;
  args.logits = rig.values(2 * kVocab);
  args.rows = 2;
  args.vocab = kVocab;
  args.sequences = rig.ints<std::int32_t>({2, 0});
  SamplingParams drawn;
  drawn.temperature = 1;
  drawn.min_new_tokens = 8;
  args.params = rig.ints<SamplingParams>({drawn, {}, drawn});
  args.stop_ids = rig.ints<std::int32_t>({1, 2});
  args.stop_count = 2;
  args.next_tokens = rig.ints<std::int32_t>({0, 0, 0});
  args.lengths = rig.ints<std::int32_t>({5, 6, 7});
  args.generated = rig.ints<std::int32_t>({1, 2, 3});
  args.chosen = rig.ints<std::int32_t>({0, 0});
  rig.ops().sample(args, kSequences);
  rig.check();
  const Recorded& op = rig.device().last();
  CHECK(size_of(op.reads) ==
        2 * kVocab * 2 + 2 * 4 + kSequences * sizeof(SamplingParams) + 2 * 4 + 2 * kSequences * 4);
  CHECK(size_of(op.writes) == 3 * kSequences * 4 + 2 * 4);
}

TEST_CASE("decode_rows declares what it touches and fills the rows", "[ops]") {
  Rig rig;
  DecodeRowsArgs args;
  args.active = rig.ints<std::int32_t>({2, 0});
  args.next_tokens = rig.ints<std::int32_t>({11, 22, 33});
  args.lengths = rig.ints<std::int32_t>({5, 6, 7});
  args.tokens = rig.ints<std::int32_t>({0, 0});
  args.sequences = rig.ints<std::int32_t>({0, 0});
  args.positions = rig.ints<std::int32_t>({0, 0});
  args.count = 2;
  rig.ops().decode_rows(args, kSequences);
  rig.check();
  CHECK(std::vector<std::int32_t>(args.tokens, args.tokens + 2) ==
        std::vector<std::int32_t>{33, 11});
  CHECK(std::vector<std::int32_t>(args.sequences, args.sequences + 2) ==
        std::vector<std::int32_t>{2, 0});
  CHECK(std::vector<std::int32_t>(args.positions, args.positions + 2) ==
        std::vector<std::int32_t>{7, 5});
  CHECK(size_of(rig.device().last().reads) == 2 * 4 + 2 * kSequences * 4);
  CHECK(size_of(rig.device().last().writes) == 3 * 2 * 4);
}

TEST_CASE("copies declare both sides and their direction", "[ops]") {
  Rig rig;
  auto* to = rig.ints<std::int32_t>({0, 0, 0});
  const auto* from = rig.ints<std::int32_t>({1, 2, 3});
  rig.ops().upload(to, from, 12);
  CHECK(rig.device().last().on == Resource::h2d);
  CHECK(rig.device().last().bytes == 12);
  CHECK(rig.device().last().reads.at(0).begin == range_of(from, 12).begin);
  CHECK(rig.device().last().writes.at(0).begin == range_of(to, 12).begin);
  CHECK(to[2] == 3);
  rig.ops().download(to, from, 8);
  CHECK(rig.device().last().on == Resource::d2h);
  CHECK(size_of(rig.device().last().writes) == 8);
}

TEST_CASE("an old processor is refused before a kernel runs on it", "[ops]") {
  on_old_processor([] {
    ArenaDevice device;
    CHECK_THROWS_AS(make_kernels(device), Error);
  });
  ArenaDevice device;
  CHECK(make_kernels(device));
}

}  // namespace sluice::test
