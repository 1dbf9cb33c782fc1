// What a policy implements. Nothing here names a pointer, a stream, an event or a clock: decisions
// are a pure function of the model, the budget, the parameters and the steps so far.
#pragma once
#include <string>
#include <vector>

#include "sluice/unit.hpp"

namespace sluice {

// What the device may hold of the streamed units.
struct Budget {
  // Slots of each kind, those of kept units and the rotating ones together. Never more than there
  // are units of the kind. For a budget in bytes: the most whole layers that fit.
  PerKind<std::uint32_t> slots;
  // A budget in bytes: what slots and staging may take, the head already subtracted; a layout that
  // fits into them may differ from `slots`. 0: `slots` is the limit.
  std::uint64_t bytes = 0;
};

// A layout that cannot be had ends the run before its first step, under the policy's name.
struct Layout {
  // Streamed units, each once; loaded in this order before the first step, never evicted.
  std::vector<UnitId> keep{};
  // Rotating slots by kind. 0 leaves it to the engine: what `Budget::slots` has beyond `keep`. Those
  // beyond the units that move are not made; a kind that moves needs one at least.
  PerKind<std::uint32_t> rotating{};
  std::uint32_t lanes = 1;  // copy streams, at most 16; 0: copies go onto the compute stream
  // The host waits for each unit's copy before it enqueues anything else. What it enqueued before
  // computes on meanwhile.
  bool blocking = false;
  // What the user should know about this model under this budget, a sentence each; printed once, and
  // part of the record.
  std::vector<std::string> notes{};
};

enum class Phase : std::uint8_t { prefill, decode, verify };
inline constexpr std::array<std::string_view, 3> kPhases{"prefill", "decode", "verify"};

constexpr std::string_view name_of(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }

// One acquisition by the forward pass: of a unit that every token walks, or of the head.
struct Step {
  std::uint64_t index = 0;  // grows by one from 0, never repeats, warm-up and repeats included
  Phase phase = Phase::decode;
  std::uint32_t tokens = 1;         // tokens that these units are applied to
  std::span<const UnitId> needs{};  // exactly what this step reads, each once
  std::span<const UnitId> soon{};   // certain later needs, nearest first, on into the next token;
                                    // experts that no router has chosen yet are not among them, nor
                                    // is the head
};

inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

// The engine's book on one unit; policies need none of their own.
struct UnitUse {
  std::uint64_t loaded = 0;    // step of its last load into a rotating slot
  std::uint64_t last_use = 0;  // step of its last read; equals `loaded` before the first since then
  std::uint64_t uses = 0;      // reads since the run began
};

// The units of the incoming one's kind that may be evicted now, a view of the engine's book: least
// recently used first. Units of the open step and kept units are never among them. Valid only inside
// the call of victim() that received it.
class Candidates {
 public:
  virtual std::size_t size() const = 0;
  virtual UnitId oldest() const = 0;                       // kNoUnit when there is none
  virtual UnitId newer(UnitId than) const = 0;             // the next in order of use, or kNoUnit
  virtual UnitId oldest_in(std::int32_t layer) const = 0;  // the same walk within one layer
  virtual UnitId newer_in_layer(UnitId than) const = 0;
  virtual bool contains(UnitId unit) const = 0;
  // Of any unit of the model, candidate or not; another id throws.
  virtual const UnitInfo& info(UnitId unit) const = 0;  // lives as long as the run
  virtual UnitUse use(UnitId unit) const = 0;
  // Place in the open step's `soon`: 1 is the nearest; kNever when it is not there.
  virtual std::uint64_t next_in(UnitId unit) const = 0;

 protected:
  ~Candidates() = default;
};

enum class Asked : std::uint8_t {
  accepted,  // it has a slot now, and its copy will be issued
  already,   // it has a slot
  no_slot,   // no slot of its kind but those that the open step needs, or victim() gave up
  refused,   // no unit that can be moved, or not asked inside before() or routed(); counted
};

// What before() and routed() may ask for. Valid only inside the call that received it: what is asked
// elsewhere, in victim() for instance, is refused and counted.
class Actions {
 public:
  // A wish. When the hook returns, copies are issued: first what the open step needs, in its order,
  // then wishes for units of its `soon`, in the order asked. Anything else is a guess: it has a slot
  // but waits, in the order asked, so that at most 32 MiB of guesses are under way at a time; evicted
  // before that it costs no copy, and wished for again when it is certain it is a guess no longer.
  virtual Asked prefetch(UnitId unit) = 0;
  // Its slot becomes free; nothing when it has none. Refused, and counted, for a kept unit, one of
  // the open step, and what no policy moves.
  virtual void drop(UnitId unit) = 0;
  // Of the moment, for any id: what is no unit has no slot and is not kept. The head is kept.
  virtual bool has_slot(UnitId unit) const = 0;
  virtual bool is_kept(UnitId unit) const = 0;
  virtual std::uint32_t rotating_slots(UnitKind kind) const = 0;  // the same for the whole run
  virtual std::uint32_t free_slots(UnitKind kind) const = 0;      // of those, without a unit

 protected:
  ~Actions() = default;
};

// Where a unit's work is done.
enum class Place : std::uint8_t { device, host };

// Made for one run, its warm-up and repeats included, and called from one host thread: the one that
// enqueues the forward pass, so hooks must not block. What the arguments refer to, spans included, is
// valid inside the call only, but for ModelView's. An exception out of a hook ends the run under the
// policy's name; out of a destructor it ends the process. What is out of bounds is refused and
// counted, in the figure `refused`: no policy can corrupt a run.
class IOffloadPolicy {
 public:
  virtual ~IOffloadPolicy() = default;

  // Once, after transfer() and before the first step: what stays for good and how the rest may move.
  virtual Layout layout(const ModelView& model, const Budget& budget) {
    static_cast<void>(model);
    static_cast<void>(budget);
    return {};
  }
  // How this unit travels and lives. Asked for every unit but the embedding before anything else, and
  // again by the engine: the answer must not change during a run.
  virtual Transfer transfer(const ModelView& model, const UnitInfo& unit) const {
    static_cast<void>(model);
    static_cast<void>(unit);
    return {};
  }
  // The host is about to enqueue `step`: ask for what will be needed. Whatever of `step.needs`
  // has no slot afterwards is fetched by the engine.
  virtual void before(const Step& step, Actions& actions) {
    static_cast<void>(step);
    static_cast<void>(actions);
  }
  // Of how many experts, for each token, routed() is to be told behind `step`, whose layer has a router
  // and which decodes. 0: of none, and nothing is computed for it. Asked once, behind before().
  virtual std::uint32_t wanted_guesses(const Step& step) {
    static_cast<void>(step);
    return 0;
  }
  // The router of the next layer that has experts, shown the hidden states of this one, names those that
  // it is likely to choose: each token's best, then each one's second, every expert once. Called behind
  // the step of this layer's experts if wanted_guesses() asked for it, and if that router lies on the
  // device for good, as all do under a budget of expert slots.
  virtual void routed(std::span<const UnitId> units, Actions& actions) {
    static_cast<void>(units);
    static_cast<void>(actions);
  }
  // `incoming` needs a slot and none is free: name one of `candidates` (never empty), or kNoUnit to
  // give a wish up. Anything else is refused, counted, and taken for kNoUnit. A needed unit always
  // gets its slot: the least recently used one goes if this gives up.
  virtual UnitId victim(const UnitInfo& incoming, const Candidates& candidates) {
    static_cast<void>(incoming);
    return candidates.oldest();
  }
  // Bring the unit to the device, or run it where it lies. Asked, after before(), for needed `mlp`
  // and `expert` units without a slot. Nothing runs on the host yet: that answer is refused, counted,
  // and the unit is brought.
  virtual Place place(const UnitInfo& unit, const Step& step) {
    static_cast<void>(unit);
    static_cast<void>(step);
    return Place::device;
  }
};

}  // namespace sluice
