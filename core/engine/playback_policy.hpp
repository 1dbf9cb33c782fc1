// A policy that decides what another one has decided before, from a log of its decisions.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "sluice/policy.hpp"

namespace sluice {

// A log of core/engine/decision_log.hpp, read back.
struct Decisions {
  struct Act {  // a wish, or a drop
    bool is_wish = false;
    UnitId unit = kNoUnit;
    Asked answer = Asked::accepted;  // of a wish
  };
  struct Victim {
    UnitId named = kNoUnit, incoming = kNoUnit;
  };
  // before() of a step, or routed(), and what followed.
  struct Hook {
    std::uint64_t step = 0;
    bool is_routed = false;
    Phase phase = Phase::decode;
    std::uint32_t tokens = 0;
    std::vector<UnitId> units{};  // needs, or those that the router named
    std::vector<Act> acts{};
    std::deque<Victim> victims{};
    std::vector<UnitId> on_host{};  // what place() wanted there
    std::uint32_t guesses = 0;      // what wanted_guesses() answered
  };

  std::vector<Transfer> transfers;  // index: UnitId
  Layout layout;
  std::vector<Hook> hooks;
};

// Lines without a transfer, a layout or a step are passed over: they say where the log comes from.
// Throws InputError, `file` and the line named, for one that is not JSON or no decision.
Decisions read_decisions(const std::string& text, const std::string& file);

// Follows the decisions as long as the run is the recorded one. From the first difference on, in what
// the forward pass asks or in what the engine answers, it wishes for nothing.
class PlaybackPolicy final : public IOffloadPolicy {
 public:
  explicit PlaybackPolicy(Decisions decisions) : decisions_(std::move(decisions)) {}

  // The first difference; empty: none so far.
  const std::string& difference() const { return difference_; }
  // The same where the run has ended: a record that goes on is a difference.
  std::string difference_at_end() const;

  Layout layout(const ModelView& model, const Budget& budget) override;
  Transfer transfer(const ModelView& model, const UnitInfo& unit) const override;
  void before(const Step& step, Actions& actions) override;
  std::uint32_t wanted_guesses(const Step& step) override;
  void routed(std::span<const UnitId> units, Actions& actions) override;
  UnitId victim(const UnitInfo& incoming, const Candidates& candidates) override;
  Place place(const UnitInfo& unit, const Step& step) override;

 private:
  void play(const Decisions::Hook& asked, Actions& actions);
  void differ(std::string what);

  Decisions decisions_;
  std::size_t next_ = 0;    // the first hook that was not reached
  std::uint64_t step_ = 0;  // of the last before()
  std::string difference_;
};

}  // namespace sluice
