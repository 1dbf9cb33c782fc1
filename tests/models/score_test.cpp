// The logits of every token of a prompt: those of prompts that end there, bit for bit, for each unit
// read once.
#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "core/engine/resident_provider.hpp"
#include "core/weights/convert.hpp"
#include "tests/catch.hpp"
#include "tests/models/rig.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kScoreContext = 160;

struct Scores {
  std::vector<std::vector<float>> logits;  // by row
  std::vector<std::uint32_t> groups;       // rows that came together
};

Scores score(ModelRig& rig, Decoder& decoder, ILayerProvider& provider, std::uint32_t sequence,
             const Ids& tokens) {
  Scores out;
  const auto vocab = static_cast<std::size_t>(decoder.vocab());
  decoder.score(provider, sequence, tokens, true, [&](const LogitRows& rows) {
    REQUIRE(rows.first == out.logits.size());
    REQUIRE(rows.values.size() == rows.count * vocab * size_of(rig.dtype()));
    out.groups.push_back(rows.count);
    for (std::uint32_t row = 0; row < rows.count; ++row) {
      out.logits.emplace_back(vocab);
      convert(rig.dtype(), rows.values.data() + row * vocab * size_of(rig.dtype()), DType::f32,
              reinterpret_cast<std::byte*>(out.logits.back().data()), vocab);
    }
  });
  return out;
}

Scores score_on(ModelRig& rig, const Ids& tokens, const DecoderLimits& limits) {
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder(limits);
  return score(rig, *decoder, provider, limits.sequences - 1, tokens);
}

std::vector<float> first_logits(ModelRig& rig, Decoder& decoder, ILayerProvider& provider,
                                const Ids& prompt) {
  GenerationRequest request = greedy(prompt, 1);
  request.want_first_logits = true;
  return Generator(rig.device(), decoder, provider, {}).run({&request, 1}, 1)[0].first_logits;
}

// Counts what is asked for.
class CountingProvider final : public ILayerProvider {
 public:
  explicit CountingProvider(ILayerProvider& inner) : inner_(inner) {}
  Lease acquire(const Step& step) override {
    for (const UnitId unit : step.needs) ++acquired[unit];
    soon = step.soon.size();
    return inner_.acquire(step);
  }
  void routed(std::span<const UnitId> units) override { inner_.routed(units); }
  std::uint32_t capacity(UnitKind kind) const override { return inner_.capacity(kind); }
  const Counters& counters() const override { return inner_.counters(); }

  std::map<UnitId, int> acquired;
  std::size_t soon = 0;  // of the newest step

 private:
  // The lease that acquire() hands out is the inner provider's own.
  Weights use(const Step&, std::size_t) override { return {}; }
  void close(const Step&) noexcept override {}

  ILayerProvider& inner_;
};

TEST_CASE("a row's scores are the first logits of the prompt that ends there", "[score]") {
  for (const auto& path : all_checkpoints()) {
    ModelRig rig(path);
    const Ids tokens = made_up_prompt(150, 7, rig.config().vocab);
    ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
    const auto decoder = rig.decoder({.context = kScoreContext, .logit_rows = 16});
    const Scores scores = score(rig, *decoder, provider, 0, tokens);
    REQUIRE(scores.logits.size() == tokens.size());
    for (const std::size_t length : {1, 2, 16, 17, 64, 65, 128, 149, 150}) {
      CAPTURE(path.filename(), length);
      const Ids cut(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
      CHECK(same_bits(scores.logits[length - 1], first_logits(rig, *decoder, provider, cut)));
    }
  }
}

TEST_CASE("the last row's scores are the reference's first logits", "[score]") {
  for (const auto& path : all_checkpoints()) {
    ModelRig rig(path, DType::f32);
    for (const Golden& one : golden_of(path)) {
      CAPTURE(path.filename(), one.prompt.size());
      const Scores scores = score_on(rig, one.prompt, {.context = 512, .logit_rows = 16});
      const std::vector<float>& logits = scores.logits.back();
      REQUIRE(logits.size() == one.first_logits_fp32.size());
      float worst = 0;
      for (std::size_t id = 0; id < logits.size(); ++id)
        worst = std::max(worst, std::abs(logits[id] - one.first_logits_fp32[id]));
      CHECK(worst < 1e-4f * one.largest_logit());
    }
  }
}

TEST_CASE("neither the rows at once nor the pieces of a prompt change scores", "[score]") {
  ModelRig rig(checkpoint("qwen3-tiny"));
  const Ids tokens = made_up_prompt(150, 8, rig.config().vocab);
  const Scores whole = score_on(rig, tokens, {.context = kScoreContext, .logit_rows = 150});
  CHECK(whole.groups == std::vector<std::uint32_t>{150});
  for (const DecoderLimits limits :
       {DecoderLimits{.context = kScoreContext},
        DecoderLimits{.context = kScoreContext, .logit_rows = 7},
        DecoderLimits{.context = 150, .sequences = 4, .prefill_chunk = 11},
        DecoderLimits{.context = kScoreContext, .sequences = 2, .logit_rows = 200}}) {
    const std::uint32_t rows = std::max(limits.sequences, limits.logit_rows);
    CAPTURE(rows);
    const Scores parts = score_on(rig, tokens, limits);
    CHECK(parts.groups.front() == std::min(rows, 150u));
    CHECK(parts.groups.size() == (150 + rows - 1) / rows);
    REQUIRE(parts.logits.size() == whole.logits.size());
    for (std::size_t row = 0; row < tokens.size(); ++row)
      CHECK(same_bits(parts.logits[row], whole.logits[row]));
  }
}

TEST_CASE("scoring asks for each unit once and for nothing beyond the last pass", "[score]") {
  ModelRig rig(checkpoint("qwen3-tiny"));
  ResidentProvider resident(rig.device(), rig.compute(), rig.weights());
  CountingProvider provider(resident);
  const auto decoder =
      rig.decoder({.context = kScoreContext, .logit_rows = 4, .prefill_chunk = 32});
  const Ids tokens = made_up_prompt(100, 9, rig.config().vocab);
  const auto ignore = [](const LogitRows&) {};
  decoder->score(provider, 0, tokens, false, ignore);
  const std::size_t units = rig.weights().view().units.size() - 1;  // but for the embedding
  CHECK(provider.acquired.size() == units);
  CHECK(std::all_of(provider.acquired.begin(), provider.acquired.end(),
                    [](const auto& unit) { return unit.second == 1; }));
  CHECK(provider.soon == units - 1);
  decoder->score(provider, 0, tokens, true, ignore);
  CHECK(provider.soon == 0);
}

TEST_CASE("scoring disturbs no other sequence and leaves none behind", "[score]") {
  ModelRig rig(checkpoint("llama-tiny"));
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const Ids prompt = made_up_prompt(70, 10, rig.config().vocab);
  const Ids other = made_up_prompt(130, 11, rig.config().vocab);
  const auto decoder = rig.decoder({.context = kScoreContext, .sequences = 2});
  const auto run = [&](bool scored) {
    const std::vector<std::uint32_t> first{0};
    std::vector<std::vector<float>> logits;
    decoder->start(0, {});
    decoder->prefill(provider, first, std::vector<std::span<const std::int32_t>>{prompt}, false);
    for (int pass = 0; pass < 4; ++pass) {
      if (scored) score(rig, *decoder, provider, 1, other);
      decoder->decode(provider, first, false);
      logits.push_back(decoder->logits(0));
    }
    decoder->finish(0);
    return logits;
  };
  const auto alone = run(false), between = run(true);
  for (std::size_t pass = 0; pass < alone.size(); ++pass)
    CHECK(same_bits(alone[pass], between[pass]));
}

TEST_CASE("a sink that throws ends the scoring, and the decoder goes on", "[score]") {
  ModelRig rig(checkpoint("qwen3-tiny"));
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder({.context = kScoreContext, .logit_rows = 3});
  const Ids tokens = made_up_prompt(20, 12, rig.config().vocab);
  const Scores before = score(rig, *decoder, provider, 0, tokens);
  CHECK_THROWS_AS(decoder->score(provider, 0, tokens, true,
                                 [](const LogitRows& rows) {
                                   if (rows.first == 6)
                                     throw std::runtime_error("the sink is full");
                                 }),
                  std::runtime_error);
  const Scores again = score(rig, *decoder, provider, 0, tokens);
  REQUIRE(again.logits.size() == before.logits.size());
  for (std::size_t row = 0; row < tokens.size(); ++row)
    CHECK(same_bits(again.logits[row], before.logits[row]));
}

TEST_CASE("what cannot be scored is refused", "[score]") {
  ModelRig rig(checkpoint("qwen3-tiny"));
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder({.context = 8});
  const auto scoring = [&](std::uint32_t sequence, const Ids& tokens) {
    decoder->score(provider, sequence, tokens, true, [](const LogitRows&) {});
  };
  CHECK_THROWS_AS(scoring(0, {}), InputError);
  CHECK_THROWS_AS(scoring(0, {320}), InputError);
  CHECK_THROWS_AS(scoring(0, Ids(9, 1)), InputError);
  CHECK_THROWS_AS(scoring(1, {1}), Error);
  decoder->start(0, {});
  CHECK_THROWS_AS(scoring(0, {1}), Error);
  decoder->finish(0);
  scoring(0, Ids(8, 1));
}

}  // namespace
}  // namespace sluice::test
