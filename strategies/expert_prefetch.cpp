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
    ParamSpec{"least_percent", ParamType::integer, 50, 0, 100,
              "of the guesses fetched lately: how many must have been what the layer then needed"},
    ParamSpec{"pause", ParamType::integer, 512, 1, 1e6,
              "steps without a guess once they were fewer"}};

class ExpertPrefetch final : public ExpertCache {
 public:
  explicit ExpertPrefetch(const Params& params)
      : ExpertCache(params),
        wanted_(static_cast<std::uint32_t>(params.integer("guesses"))),
        least_percent_(static_cast<std::uint32_t>(params.integer("least_percent"))),
        pause_(static_cast<std::uint64_t>(params.integer("pause"))) {}

  Layout layout(const ModelView& model, const Budget& budget) override {
    Layout out = ExpertCache::layout(model, budget);
    fetched_.assign(static_cast<std::size_t>(model.layers), {});
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
    guess(units, actions, [&](UnitId unit) { fetched_[layer_of(unit)].push_back(unit); });
  }

 private:
  static constexpr std::uint32_t kJudged = 64;  // guesses, then they are judged

  bool pauses() const { return prefills_ || now_ < resumes_; }

  // The first step of a layer's experts names all that it needs. A guess that was not among them has cost
  // its copy and another's slot, even if it is needed some day.
  void judge(const Step& step, const Actions& actions) {
    std::vector<UnitId>& fetched = fetched_[layer_of(step.needs.front())];
    for (const UnitId unit : fetched) {
      const bool needed = names(step.needs, unit) || names(step.soon, unit);
      right_ += needed && actions.has_slot(unit) ? 1 : 0;
    }
    judged_ += static_cast<std::uint32_t>(fetched.size());
    fetched.clear();
    if (judged_ < kJudged) return;
    if (100 * right_ < least_percent_ * judged_) resumes_ = now_ + pause_;
    judged_ = right_ = 0;
  }
  static bool names(std::span<const UnitId> units, UnitId unit) {
    return std::find(units.begin(), units.end(), unit) != units.end();
  }

  std::uint32_t wanted_, least_percent_, judged_ = 0, right_ = 0;
  std::uint64_t pause_, now_ = 0, resumes_ = 0;
  bool prefills_ = false;
  std::vector<std::vector<UnitId>> fetched_;  // index: layer; by guesses, since its last step
};

}  // namespace

SLUICE_POLICY(ExpertPrefetch, expert_prefetch, "1.0",
              "caches experts, and asks for those that a router foresees while that pays", kParams);
