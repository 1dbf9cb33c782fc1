// What a policy implements. Nothing here names a pointer, a stream, an event or a clock: decisions
// are a pure function of the model, the budget, the parameters and the steps so far.
#pragma once
#include <vector>

#include "sluice/unit.hpp"

namespace sluice {

// What the device may hold of the streamed units.
struct Budget {
  // Slots of each kind, those of kept units and the rotating ones together. Never more than there
  // are units of the kind. For a budget in bytes: the most whole layers that fit.
  PerKind<std::uint32_t> slots;
  // A budget in bytes: what slots and staging may take, the head already subtracted.
  // 0: the budget was given in slots.
  std::uint64_t bytes = 0;
};

struct Layout {
  std::vector<UnitId> keep{};  // loaded once, before the first step; never evicted
  // Rotating slots by kind. 0 leaves it to the engine: what `Budget::slots` has beyond `keep`.
  PerKind<std::uint32_t> rotating{};
  std::uint32_t lanes = 1;  // copy streams; 0: copies go onto the compute stream
  bool blocking = false;    // the host waits for each copy
};

enum class Phase : std::uint8_t { prefill, decode, verify };

// One acquisition by the forward pass.
struct Step {
  std::uint64_t index = 0;  // grows by one from 0, never repeats
  Phase phase = Phase::decode;
  std::uint32_t tokens = 1;         // tokens that these units are applied to
  std::span<const UnitId> needs{};  // exactly what this step reads
  std::span<const UnitId> soon{};   // certain later needs, nearest first, on into the next token;
                                    // experts that no router has chosen yet are not among them
};

inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

// The engine's book on one resident unit; policies need none of their own.
struct UnitUse {
  std::uint64_t loaded = 0;    // step of its last load
  std::uint64_t last_use = 0;  // step of its last read; equals `loaded` before the first
  std::uint64_t uses = 0;      // reads since the run began
};

// The units of one kind that may be evicted now, a view of the engine's book: least recently used
// first. Units of the open step and kept units are never among them.
class Candidates {
 public:
  virtual std::size_t size() const = 0;
  virtual UnitId oldest() const = 0;                       // kNoUnit when there is none
  virtual UnitId newer(UnitId than) const = 0;             // the next in order of use, or kNoUnit
  virtual UnitId oldest_in(std::int32_t layer) const = 0;  // the same walk within one layer
  virtual UnitId newer_in_layer(UnitId than) const = 0;
  virtual bool contains(UnitId unit) const = 0;
  virtual const UnitInfo& info(UnitId unit) const = 0;
  virtual UnitUse use(UnitId unit) const = 0;
  // Place in the open step's `soon`: 1 is the nearest; kNever when it is not there.
  virtual std::uint64_t next_in(UnitId unit) const = 0;

 protected:
  ~Candidates() = default;
};

enum class Asked : std::uint8_t {
  accepted,  // it has a slot now; its copy is issued, or queued when it is a guess
  already,   // it has a slot
  no_slot,   // every slot of its kind is in use, or victim() gave up
  refused,   // not a unit that can be moved; counted
};

// What a hook may ask for. Valid only inside the hook that received it.
class Actions {
 public:
  // Units of the open step and of its `soon` are certain: their copies are issued at once, in the
  // order asked. Anything else is a guess and waits until the link is idle.
  virtual Asked prefetch(UnitId unit) = 0;
  // Its slot becomes free. Refused, and counted, for a kept unit or one of the open step.
  virtual void drop(UnitId unit) = 0;
  virtual bool has_slot(UnitId unit) const = 0;
  virtual bool is_kept(UnitId unit) const = 0;
  virtual std::uint32_t rotating_slots(UnitKind kind) const = 0;
  virtual std::uint32_t free_slots(UnitKind kind) const = 0;

 protected:
  ~Actions() = default;
};

// Where a unit's work is done.
enum class Place : std::uint8_t { device, host };

// Called from one host thread. Hooks must not block; an exception ends the run under the policy's
// name. The engine refuses, and counts, what is out of bounds: no policy can corrupt a run.
class IOffloadPolicy {
 public:
  virtual ~IOffloadPolicy() = default;

  // Once, before the run: what stays for good and how the rest may move.
  virtual Layout layout(const ModelView& model, const Budget& budget) {
    static_cast<void>(model);
    static_cast<void>(budget);
    return {};
  }
  // How this unit travels and lives; asked before layout(), of every unit but the embedding. Must not
  // change during a run.
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
  // A router has named units that a later step is likely to need, best first.
  virtual void routed(std::span<const UnitId> units, Actions& actions) {
    static_cast<void>(units);
    static_cast<void>(actions);
  }
  // `incoming` needs a slot: name one of `candidates` (never empty), or kNoUnit to give a wish up.
  // A needed unit always gets its slot: the least recently used one goes if this gives up.
  virtual UnitId victim(const UnitInfo& incoming, const Candidates& candidates) {
    static_cast<void>(incoming);
    return candidates.oldest();
  }
  // Bring the unit to the device, or run it where it lies. Asked for `mlp` and `expert` units.
  virtual Place place(const UnitInfo& unit, const Step& step) {
    static_cast<void>(unit);
    static_cast<void>(step);
    return Place::device;
  }
};

}  // namespace sluice
