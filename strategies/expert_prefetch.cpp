// Caches experts, and asks ahead for those that a router names for a later layer. It counts what
// becomes of these guesses, and asks for none while too few of them are needed.
#include "sluice/expert_cache.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{
    kExpertScope,
    kExpertEncoding,
    kExpertPrefill,
    kExpertPrefillSlots,
    ParamSpec{"guesses", ParamType::integer, 4, 1, 64,
              "how many of the experts that a router names are asked for, the best first"},
    ParamSpec{"least_percent", ParamType::integer, 50, 0, 100,
              "of the guesses brought lately: how many must have been needed"},
    ParamSpec{"pause", ParamType::integer, 512, 1, 1e6,
              "steps without a guess once they were fewer"}};

class ExpertPrefetch final : public ExpertCache {
 public:
  explicit ExpertPrefetch(const Params& params)
      : ExpertCache(params),
        most_(static_cast<std::size_t>(params.integer("guesses"))),
        least_percent_(static_cast<std::uint32_t>(params.integer("least_percent"))),
        pause_(static_cast<std::uint64_t>(params.integer("pause"))) {}

  Layout layout(const ModelView& model, const Budget& budget) override {
    Layout out = ExpertCache::layout(model, budget);
    guessed_.assign(unit_count(), false);
    return out;
  }

  void before(const Step& step, Actions& actions) override {
    now_ = step.index;
    prefills_ = step.phase == Phase::prefill;
    ExpertCache::before(step, actions);
  }

  void routed(std::span<const UnitId> units, Actions& actions) override {
    if (prefills_ || now_ < resumes_) return;
    guess(units.first(std::min(most_, units.size())), actions,
          [&](UnitId unit) { guessed_[unit] = true; });
  }

 private:
  static constexpr std::uint32_t kJudged = 64;  // guesses, then they are judged

  void used(UnitId unit, bool) override { settle(unit, true); }
  void left(UnitId unit) override { settle(unit, false); }

  // A guess was needed, or has left before it was.
  void settle(UnitId unit, bool needed) {
    if (!guessed_[unit]) return;
    guessed_[unit] = false;
    right_ += needed ? 1 : 0;
    if (++settled_ < kJudged) return;
    if (100 * right_ < least_percent_ * settled_) resumes_ = now_ + pause_;
    settled_ = right_ = 0;
  }

  std::size_t most_;
  std::uint32_t least_percent_, settled_ = 0, right_ = 0;
  std::uint64_t pause_, now_ = 0, resumes_ = 0;
  bool prefills_ = false;
  std::vector<bool> guessed_;  // index: UnitId; brought by a guess, not needed since
};

}  // namespace

SLUICE_POLICY(ExpertPrefetch, expert_prefetch, "1.0",
              "caches experts, and asks for those that a router foresees while that pays", kParams);
