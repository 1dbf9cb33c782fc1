#include <cmath>
#include <map>
#include <numeric>

#include "models/ops/philox.hpp"
#include "models/ops/sampling.hpp"
#include "tests/catch.hpp"
#include "tests/ops/bed.hpp"
#include "tests/ops/reference.hpp"
#include "tests/ops/sampling_params.hpp"

namespace sluice::test {
namespace {

// The state of a few sequences as a device holds it.
struct State {
  std::pmr::vector<float> logits;
  std::uint32_t vocab;
  Ints sequences;
  std::pmr::vector<SamplingParams> params;
  Ints stop_ids, next, lengths, generated, chosen;

  State(std::pmr::vector<float> of, std::uint32_t vocabulary, Ints rows, std::size_t count)
      : logits(std::move(of)),
        vocab(vocabulary),
        sequences(std::move(rows)),
        params(count),
        next(count, -1),
        lengths(count, 10),
        generated(count, 0),
        chosen(sequences.size(), -1) {}

  void run() {
    SampleArgs args;
    args.logits = logits.data();
    args.type = DType::f32;
    args.rows = static_cast<std::uint32_t>(sequences.size());
    args.vocab = vocab;
    args.sequences = sequences.data();
    args.params = params.data();
    args.stop_ids = stop_ids.data();
    args.stop_count = static_cast<std::uint32_t>(stop_ids.size());
    args.next_tokens = next.data();
    args.lengths = lengths.data();
    args.generated = generated.data();
    args.chosen = chosen.data();
    test::run(&IKernels::sample, args);
  }
};

}  // namespace

TEST_CASE("sample draws with the probabilities that the filters leave", "[sample]") {
  constexpr std::uint64_t kSeed = 20260141;
  CAPTURE(kSeed);
  constexpr int kDraws = 100000;
  constexpr std::size_t kSequences = 100;
  const std::vector<float> logits{0.5f, 2.0f, -1.0f, 1.0f, 1.9f, -3.0f, 0.0f, 1.2f};
  struct Case {
    SamplingParams params;
    std::vector<std::int32_t> ids;
  };
  // What stays is seen by hand from the probabilities at that temperature.
  const Case cases[] = {{with(1), {1, 4, 7, 3, 0, 6, 2, 5}},
                        {with(0.7f), {1, 4, 7, 3, 0, 6, 2, 5}},
                        {with(1.3f, 5), {1, 4, 7, 3, 0}},
                        {with(1, 0, 0.8f), {1, 4, 7, 3}},
                        {with(1, 0, 1, 0.2f), {1, 4, 7, 3, 0}}};
  for (const Case& c : cases) {
    std::map<std::int32_t, double> expected;
    double total = 0;
    for (const std::int32_t id : c.ids) {
      total += expected[id] = std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) /
                                       c.params.temperature);
    }
    std::pmr::vector<float> rows;
    Ints sequences(kSequences);
    std::iota(sequences.begin(), sequences.end(), 0);
    for (std::size_t s = 0; s < kSequences; ++s)
      rows.insert(rows.end(), logits.begin(), logits.end());
    State state(rows, 8, sequences, kSequences);
    for (std::size_t s = 0; s < kSequences; ++s) {
      state.params[s] = c.params;
      state.params[s].seed = kSeed + s;
    }
    std::map<std::int32_t, int> drawn;
    for (std::size_t i = 0; i < kDraws / kSequences; ++i) {
      state.run();
      for (const std::int32_t token : state.chosen) ++drawn[token];
    }
    double chi_squared = 0;
    int counted = 0;
    for (const auto& [id, weight] : expected) {
      const double mean = weight / total * kDraws;
      chi_squared += std::pow(drawn[id] - mean, 2) / mean;
      counted += drawn[id];
    }
    CHECK(counted == kDraws);
    // 99.9 % of seven degrees of freedom stay below 24.3; fewer degrees, lower.
    CHECK(chi_squared < 24.3);
    CHECK(state.generated[0] == kDraws / kSequences);
    CHECK(state.lengths[0] == kDraws / kSequences + 10);
  }
}

// The random number is a pure function of seed and place, so the choice is the sampler's own; sums in
// another order may move an edge between two tokens by a few units of 2^-24.
TEST_CASE("sample chooses what the sampler does with the same random numbers", "[sample]") {
  Seeded random(20260144);
  CAPTURE(random.seed);
  const SamplingParams cases[] = {with(0),
                                  with(1),
                                  with(0.7f),
                                  with(1.3f, 5),
                                  with(1, 0, 0.8f),
                                  with(1, 0, 1, 0.2f),
                                  with(0.8f, 20, 0.9f, 0.01f)};
  for (const std::uint32_t vocab : {1u, 8u, 31u, 320u, 3001u}) {
    constexpr std::size_t kRows = 40;
    const Tensor values = Tensor::random(DType::f32, kRows * vocab, random.rng, 2);
    std::pmr::vector<float> logits(kRows * vocab);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(values.get(i));
    for (const SamplingParams& params : cases) {
      Ints sequences(kRows);
      std::iota(sequences.begin(), sequences.end(), 0);
      State state(logits, vocab, sequences, kRows);
      for (std::size_t s = 0; s < kRows; ++s) {
        state.params[s] = params;
        state.params[s].seed = 1000 + s;
      }
      std::size_t different = 0;
      for (std::uint64_t round = 0; round < 20; ++round) {
        state.run();
        for (std::size_t s = 0; s < kRows; ++s) {
          const std::span<const float> row(logits.data() + s * vocab, vocab);
          Sampler sampler;
          const std::int32_t expected =
              params.temperature > 0 ? sampler.choose(row, params, {}, uniform(1000 + s, round))
                                     : greedy(row, {});
          if (state.chosen[s] == expected) continue;
          ++different;
          UNSCOPED_INFO("sequence " << s << ", round " << round << ": " << state.chosen[s]
                                    << ", not " << expected << ", at " << uniform(1000 + s, round));
        }
      }
      CAPTURE(vocab, params.temperature, params.top_k, params.top_p, params.min_p);
      CHECK(different <= 1);
    }
  }
}

TEST_CASE("what sample draws depends on the sequence alone", "[sample]") {
  Seeded random(20260142);
  CAPTURE(random.seed);
  constexpr std::uint32_t kVocab = 300;
  const Tensor values = Tensor::random(DType::f32, 4 * kVocab, random.rng, 2);
  std::pmr::vector<float> logits(4 * kVocab);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(values.get(i));
  State batch(logits, kVocab, {3, 0, 2, 1}, 5);
  for (std::size_t s = 0; s < 5; ++s) {
    batch.params[s] = with(0.9f, 50, 0.9f);
    batch.params[s].seed = 100 + s;
    batch.generated[s] = static_cast<std::int32_t>(s);
  }
  State before = batch;
  batch.run();
  for (std::size_t r = 0; r < 4; ++r) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(r * kVocab);
    State alone({first, first + kVocab}, kVocab, {0}, 1);
    const auto sequence = static_cast<std::size_t>(batch.sequences[r]);
    alone.params[0] = before.params[sequence];
    alone.generated[0] = before.generated[sequence];
    alone.run();
    CHECK(alone.chosen[0] == batch.chosen[r]);
    CHECK(batch.next[sequence] == batch.chosen[r]);
    CHECK(batch.lengths[sequence] == 11);
    CHECK(batch.generated[sequence] == before.generated[sequence] + 1);
  }
  CHECK(batch.next[4] == -1);
  CHECK(batch.lengths[4] == 10);
}

TEST_CASE("sample keeps stop ids back until enough tokens are there", "[sample]") {
  State state({1, 5, 3, 4}, 4, {0}, 1);
  state.stop_ids = {1, 3};
  state.params[0].min_new_tokens = 2;
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 3; ++i) {
    state.run();
    tokens.push_back(state.chosen[0]);
  }
  CHECK(tokens == std::vector<std::int32_t>{2, 2, 1});
}

TEST_CASE("sample reads bf16 and f16 logits", "[sample]") {
  Seeded random(20260143);
  CAPTURE(random.seed);
  for (const DType type : kTypes) {
    Tensor logits = Tensor::random(type, 1000, random.rng);
    logits.set(617, 30);
    const Ints sequence{0};
    const std::pmr::vector<SamplingParams> params(1);
    Ints next{0}, length{0}, generated{0}, chosen{0};
    run(&IKernels::sample,
        SampleArgs{logits.data(), type, 1, 1000, sequence.data(), params.data(), nullptr, 0,
                   next.data(), length.data(), generated.data(), chosen.data()});
    CHECK(chosen[0] == 617);
  }
}

}  // namespace sluice::test
