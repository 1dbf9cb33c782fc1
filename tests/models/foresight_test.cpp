// Guesses at the next layer's experts: what the decoder names, when, and what a policy makes of it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "core/device/sim_device.hpp"
#include "core/engine/decision_log.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/playback_policy.hpp"
#include "models/foresight.hpp"
#include "models/synthetic_routing.hpp"
#include "tests/catch.hpp"
#include "tests/models/counting_device.hpp"
#include "tests/models/expert_runs.hpp"
#include "tests/places.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

// Layers that leave the hidden states as they are: attention and experts add zeros.
class StillSource final : public ITensorSource {
 public:
  explicit StillSource(std::unique_ptr<ITensorSource> inner) : inner_(std::move(inner)) {}
  DType stored_type(const TensorSpec& tensor) const override { return inner_->stored_type(tensor); }
  bool has(const std::string& name) const override { return inner_->has(name); }
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override {
    inner_->read(tensor, first, n, to);
    if (tensor.name.ends_with("o_proj.weight") || tensor.name.ends_with("down_proj.weight"))
      std::memset(to, 0, n * size_of(inner_->stored_type(tensor)));
  }
  std::string describe() const override { return "still"; }

 private:
  std::unique_ptr<ITensorSource> inner_;
};

ModelSource still_model(const std::string& name) {
  ModelSource source = open_model(CheckpointLocation{checkpoint(name)}, {});
  source.tensors = std::make_unique<StillSource>(std::move(source.tensors));
  return source;
}

// Wants guesses, and writes down what it is told.
struct AskingPolicy final : IOffloadPolicy {
  std::uint32_t wanted = 0;
  std::vector<std::vector<UnitId>> told;
  std::uint64_t asked = 0;

  std::uint32_t wanted_guesses(const Step& step) override {
    CHECK(step.phase == Phase::decode);
    CHECK(step.needs.size() == 1);
    ++asked;
    return wanted;
  }
  void routed(std::span<const UnitId> units, Actions&) override {
    told.emplace_back(units.begin(), units.end());
  }
};

// What each layer chose while decoding, the heaviest of every row first, all rows' first ones first.
class Choices final : public IRoutingSink {
 public:
  explicit Choices(const ModelView& view) : view_(view) {}
  void routed(const RoutedRows& rows) override {
    if (rows.phase != Phase::decode) return;
    std::vector<std::vector<std::pair<float, std::int32_t>>> sorted;
    for (std::size_t at = 0; at < rows.ids.size(); at += rows.per_token) {
      sorted.emplace_back();
      for (std::size_t k = 0; k < rows.per_token; ++k)
        sorted.back().emplace_back(-rows.weights[at + k], rows.ids[at + k]);
      std::ranges::sort(sorted.back());
    }
    std::vector<UnitId> units;
    for (std::size_t rank = 0; rank < rows.per_token; ++rank)
      for (const auto& row : sorted) {
        const UnitId unit = unit_of(rows.layer, row[rank].second);
        if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
      }
    layers.push_back({rows.layer, units});
  }
  std::vector<std::pair<std::int32_t, std::vector<UnitId>>> layers;

 private:
  UnitId unit_of(std::int32_t layer, std::int32_t expert) const {
    for (const UnitInfo& unit : view_.units)
      if (unit.layer == layer && unit.expert == expert) return unit.id;
    return kNoUnit;
  }
  ModelView view_;
};

TEST_CASE("where layers change nothing the next layer's router foretells its choice", "[experts]") {
  for (const std::uint32_t batch : {1u, 4u}) {
    ModelRig rig(still_model("qwen3moe-tiny"), DType::f32);
    const auto per_token = static_cast<std::uint32_t>(rig.config().experts.per_token);
    for (const std::uint32_t slots : {3u, 40u}) {
      CAPTURE(batch, slots);
      AskingPolicy policy;
      policy.wanted = per_token;
      Engine engine(rig.device(), rig.compute(), rig.weights(), policy, "asking",
                    ExpertBudget{slots});
      Choices choices(rig.weights().view());
      generate(rig, engine, expert_requests(rig), batch, {.sink = &choices});
      const std::int32_t first = choices.layers.front().first;
      std::vector<std::vector<UnitId>> expected;
      for (const auto& [layer, units] : choices.layers)
        if (layer != first) expected.push_back(units);
      CHECK(expected.size() > 20);
      CHECK(policy.told == expected);
      CHECK(policy.asked == policy.told.size());
    }
  }
}

TEST_CASE("more guesses than a token has experts are named, up to all of a layer", "[experts]") {
  ModelRig rig(checkpoint("qwen3moe-tiny"));
  for (const std::uint32_t wanted : {1u, 7u, 16u, 1000u}) {
    AskingPolicy policy;
    policy.wanted = wanted;
    Engine engine(rig.device(), rig.compute(), rig.weights(), policy, "asking", ExpertBudget{9});
    generate(rig, engine, expert_requests(rig), 1);
    REQUIRE(!policy.told.empty());
    for (const std::vector<UnitId>& units : policy.told) {
      CHECK(units.size() == std::min(wanted, 16u));
      CHECK(std::set(units.begin(), units.end()).size() == units.size());
    }
  }
}

TEST_CASE("where the next router moves nothing is named", "[experts]") {
  ModelRig rig(checkpoint("qwen3moe-tiny"));
  AskingPolicy policy;
  policy.wanted = 4;
  Engine engine(rig.device(), rig.compute(), rig.weights(), policy, "asking", LayerBudget{2});
  generate(rig, engine, expert_requests(rig), 1);
  CHECK(policy.asked > 0);
  CHECK(policy.told.empty());
}

TEST_CASE("guesses cost two operations a layer and no wait; not to want them costs nothing",
          "[experts]") {
  const auto run = [](IOffloadPolicy& policy) {
    auto made = std::make_unique<CountingDevice>(make_test_device());
    CountingDevice& device = *made;
    ModelRig rig(checkpoint("qwen3moe-tiny"), {}, std::move(made));
    Engine engine(rig.device(), rig.compute(), rig.weights(), policy, "asking", ExpertBudget{9});
    const auto decoder = rig.decoder({.context = 80});
    const std::vector<GenerationRequest> request{
        greedy(made_up_prompt(9, 13, rig.config().vocab), kExpertTokens)};
    device.count.clear();
    device.syncs = 0;
    Generator(rig.device(), *decoder, engine, {}).run(request, 1);
    return std::pair(device.count, device.syncs);
  };
  IOffloadPolicy plain;
  AskingPolicy none, two;
  two.wanted = 2;
  const auto expected = run(plain);
  CHECK(run(none) == expected);
  const auto asked = run(two);
  CHECK(asked.second == expected.second);
  const std::uint64_t guesses = asked.first.at("route") - expected.first.at("route");
  CHECK(guesses == two.told.size());
  std::uint64_t all = 0, all_expected = 0;
  for (const auto& [name, count] : asked.first) all += count;
  for (const auto& [name, count] : expected.first) all_expected += count;
  CHECK(all == all_expected + 2 * guesses);
}

// Routing whose guesses are all right, or all wrong.
class Foretold final : public IRouting {
 public:
  Foretold(std::uint32_t experts, bool right)
      : inner_(make_uniform_routing(experts, 5)), right_(right) {}
  void choose(std::uint32_t sequence, std::uint32_t position, std::int32_t layer,
              std::span<std::int32_t> ids) override {
    inner_->choose(sequence, position, layer, ids);
  }
  void foresee(const RoutedToken& token, std::span<const std::int32_t> chosen,
               std::span<std::int32_t> ids) override {
    std::size_t at = 0;
    for (std::int32_t id = 0; at < ids.size() && id < static_cast<std::int32_t>(token.experts);
         ++id)
      if ((std::ranges::find(chosen, id) != chosen.end()) == right_) ids[at++] = id;
    REQUIRE(at == ids.size());
  }

 private:
  std::unique_ptr<IRouting> inner_;
  bool right_;
};

struct Prefetched {
  Counters book;
  std::string log;
  Output output;
};

Prefetched run_prefetch(ModelRig& rig, IOffloadPolicy& policy, bool right) {
  std::ostringstream out;
  DecisionLog log(out);
  Engine engine(rig.device(), rig.compute(), rig.weights(), policy, "tested", ExpertBudget{40},
                {.decisions = &log});
  Foretold routing(static_cast<std::uint32_t>(rig.config().experts.count), right);
  std::vector<GenerationRequest> requests;
  for (const std::size_t length : {3, 17, 1})
    requests.push_back(greedy(made_up_prompt(length, 12, rig.config().vocab), 40));
  Prefetched done;
  done.output = generate(rig, engine, requests, 1, {.given = &routing});
  done.book = engine.counters();
  done.log = out.str();
  return done;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

PolicyPtr prefetch_of(const char* least_percent) {
  return make_policy(load_plugin(policy_directory() / "expert_prefetch.so"),
                     {{"guesses", "4"}, {"least_percent", least_percent}, {"pause", "2000"}});
}

TEST_CASE("expert_prefetch hits what it was told of, and stops asking where that loses",
          "[experts]") {
  ModelRig cpu(checkpoint("qwen3moe-tiny"));
  ModelRig sim(checkpoint("qwen3moe-tiny"), {}, make_sim_device(toy_machine()));
  const PolicyPtr lru = policy_of(expert_cases()[0]);
  const Prefetched plain = run_prefetch(cpu, *lru, true);
  CHECK(plain.log.find("routed") == std::string::npos);

  const PolicyPtr right_policy = prefetch_of("50");
  const Prefetched right = run_prefetch(cpu, *right_policy, true);
  CHECK(right.output == plain.output);
  // Of the layers behind the first one every expert was there; nothing came for nothing.
  CHECK(plain.book.misses > 300);
  CHECK(right.book.misses < plain.book.misses / 2);
  CHECK(right.book.hits > plain.book.hits);
  CHECK(right.book.loads < plain.book.loads + plain.book.loads / 10);
  CHECK(right.book.wasted == 0);

  const PolicyPtr never_stops = prefetch_of("0"), stops = prefetch_of("50");
  const Prefetched always = run_prefetch(cpu, *never_stops, false);
  const Prefetched wrong = run_prefetch(cpu, *stops, false);
  CHECK(wrong.output == plain.output);
  CHECK(always.book.loads > plain.book.loads + plain.book.loads / 2);
  CHECK(wrong.book.loads < plain.book.loads + plain.book.loads / 4);
  CHECK(4 * count(wrong.log, "\"guesses\"") < count(always.log, "\"guesses\""));
  CHECK(count(wrong.log, "\"guesses\"") > 0);

  for (const bool is_right : {true, false}) {
    const PolicyPtr again = prefetch_of("50");
    const Prefetched simulated = run_prefetch(sim, *again, is_right);
    const Prefetched& expected = is_right ? right : wrong;
    CHECK((simulated.log == expected.log));
    PlaybackPolicy playback(read_decisions(expected.log, "log"));
    CHECK((run_prefetch(cpu, playback, is_right).log == expected.log));
    CHECK(playback.difference_at_end().empty());
  }
}

TEST_CASE("given guesses are right as often as is said, and each names an expert once",
          "[experts]") {
  constexpr std::uint32_t kExperts = 64;
  const auto uniform = make_uniform_routing(kExperts, 3);
  SyntheticRouting synthetic(2, kExperts, {}), blind(2, kExperts, {.foresight = 0});
  const auto share_of_right = [&](IRouting& routing) {
    std::size_t right = 0, all = 0;
    for (std::uint32_t position = 0; position < 400; ++position) {
      std::vector<std::int32_t> chosen(8), ids(8), again(8), everything(kExperts);
      routing.choose(2, position, 1, chosen);
      const RoutedToken token{2, position, 1, kExperts};
      routing.foresee(token, chosen, ids);
      routing.foresee(token, chosen, again);
      CHECK(ids == again);
      CHECK(std::set(ids.begin(), ids.end()).size() == ids.size());
      for (const std::int32_t id : ids) right += std::ranges::binary_search(chosen, id);
      all += ids.size();
      routing.foresee(token, chosen, everything);
      std::ranges::sort(everything);
      for (std::size_t i = 0; i < kExperts; ++i) REQUIRE(everything[i] == static_cast<int>(i));
    }
    return static_cast<double>(right) / static_cast<double>(all);
  };
  CHECK(std::abs(share_of_right(*uniform) - kForesight) < 0.03);
  CHECK(std::abs(share_of_right(synthetic) - kForesight) < 0.03);
  CHECK(share_of_right(blind) == 0);
}

TEST_CASE("guesses of several rows are told rank by rank", "[experts]") {
  const std::vector<std::int32_t> ids{7, 3, 1, 3, 7, 2, 9, 1, 4};
  CHECK(best_of_all_rows(ids, 3) == std::vector<std::int32_t>{7, 3, 9, 1, 2, 4});
  CHECK(best_of_all_rows(ids, 9) == std::vector<std::int32_t>{7, 3, 1, 2, 9, 4});
}

}  // namespace
}  // namespace sluice::test
