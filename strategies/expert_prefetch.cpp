// Caches experts, and asks for those that a router foresees for the next layer. It looks at what becomes
// of these guesses, and wants none while too few of them are right.
#include "sluice/expert_cache.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{
    kExpertScope,
    kExpertEncoding,
    kExpertPrefill,
    kExpertPrefillSlots,
    ParamSpec{"guesses", ParamType::integer, 4, 1, 32,
              "how many of the next layer's experts its router is to name early, for each token; "
              "those that are not there are fetched"},
    ParamSpec{
        "least_percent", ParamType::integer, 75, 0, 100,
        "of the guesses fetched lately: how many must have been what the layer then needed, less "
        "the misses that the wrong ones have caused; 0: it never stops"},
    ParamSpec{"pause", ParamType::integer, 2048, 1, 1e6,
              "steps without a guess once they were fewer; twice as many each time in a row"}};

class ExpertPrefetch final : public ExpertCache {
 public:
  explicit ExpertPrefetch(const Params& params)
      : ExpertCache(params),
        wanted_(static_cast<std::uint32_t>(params.integer("guesses"))),
        least_percent_(static_cast<std::uint32_t>(params.integer("least_percent"))),
        pause_(static_cast<std::uint64_t>(params.integer("pause"))),
        next_pause_(pause_) {}

  Layout layout(const ModelView& model, const Budget& budget) override {
    Layout out = ExpertCache::layout(model, budget);
    fetched_.assign(static_cast<std::size_t>(model.layers), {});
    wrong_.assign(pools(), {});
    displaced_.assign(unit_count(), false);
    return out;
  }

  void before(const Step& step, Actions& actions) override {
    now_ = step.index;
    prefills_ = step.phase == Phase::prefill;
    if (!prefills_ && !step.needs.empty() && is_expert(step.needs.front())) judge(step, actions);
    ExpertCache::before(step, actions);
  }

  std::uint32_t wanted_guesses(const Step&) override { return pauses() ? 0 : wanted_; }

  void routed(std::span<const UnitId> units, Actions& actions) override {
    if (pauses()) return;
    last_left_ = kNoUnit;
    guess(units, actions, [&](UnitId unit) {
      fetched_[layer_of(unit)].push_back({unit, std::exchange(last_left_, kNoUnit)});
    });
  }

 private:
  static constexpr std::uint32_t kJudged = 32;  // guesses, then they are judged

  struct Fetched {
    UnitId unit = kNoUnit, victim = kNoUnit;  // who had to go for it, if any had
  };

  // A wrong guess goes first, or it would hold its slot until all that is older has gone.
  UnitId worst(std::size_t pool, const Candidates& candidates) override {
    for (const UnitId unit : wrong_[pool])
      if (may_go(unit, candidates)) return unit;
    return ExpertCache::worst(pool, candidates);
  }
  void left(UnitId unit) override {
    last_left_ = unit;
    wrong_[pool_of(unit)].erase(unit);
  }
  void used(UnitId unit, bool hit) override {
    wrong_[pool_of(unit)].erase(unit);
    if (displaced_[unit] && !hit) ++caused_;
    displaced_[unit] = false;
  }

  bool pauses() const { return prefills_ || now_ < resumes_; }

  // The first step of a layer's experts names all that it needs. A guess that was not among them has cost
  // a copy, which takes the link longer than any layer's work can hide, and whatever had to go for it may
  // have to come back. What goes for a right one would have gone all the same.
  void judge(const Step& step, const Actions& actions) {
    std::vector<Fetched>& fetched = fetched_[layer_of(step.needs.front())];
    for (const auto& [unit, victim] : fetched) {
      const bool needed = names(step.needs, unit) || names(step.soon, unit);
      const bool is_here = actions.has_slot(unit);
      if (needed && is_here) {
        ++right_;
        continue;
      }
      if (is_here) wrong_[pool_of(unit)].insert(unit);
      if (victim != kNoUnit) displaced_[victim] = true;
    }
    judged_ += static_cast<std::uint32_t>(fetched.size());
    fetched.clear();
    if (judged_ < kJudged) return;
    const bool loses =
        least_percent_ != 0 && 100 * right_ < least_percent_ * judged_ + 100 * caused_;
    if (loses) resumes_ = now_ + next_pause_;
    next_pause_ = loses ? 2 * next_pause_ : pause_;
    judged_ = right_ = caused_ = 0;
  }
  static bool names(std::span<const UnitId> units, UnitId unit) {
    return std::find(units.begin(), units.end(), unit) != units.end();
  }

  std::uint32_t wanted_, least_percent_;
  std::uint32_t judged_ = 0, right_ = 0,
                caused_ = 0;  // guesses, those needed, misses they have caused
  std::uint64_t pause_, next_pause_, now_ = 0, resumes_ = 0;
  bool prefills_ = false;
  UnitId last_left_ = kNoUnit;
  std::vector<std::vector<Fetched>> fetched_;  // index: layer; by guesses, since its last step
  std::vector<std::set<UnitId>> wrong_;        // index: pool; guesses that it holds, not needed yet
  std::vector<bool> displaced_;  // index: UnitId; it had to go for a wrong guess, not needed since
};

}  // namespace

SLUICE_POLICY(ExpertPrefetch, expert_prefetch, "1.0",
              "caches experts, and asks for those that a router foresees while that pays", kParams);
