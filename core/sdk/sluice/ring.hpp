// Keeps what fits, spread evenly over the layers, and streams the rest through a ring of slots. A
// token walks its layers in a circle, where the least recently used unit is always the next one
// needed: so what stays is decided once, and only the rest rotates. To be derived from, by policies
// that differ in the encodings of units.
#pragma once
#include <algorithm>

#include "sluice/helpers.hpp"

namespace sluice {

inline constexpr ParamSpec kRingDepth{"depth", ParamType::integer,           1, 1,
                                      64,      "rotating slots of each kind"};
inline constexpr ParamSpec kRingLanes{"lanes", ParamType::integer, 1, 1, 4, "copy streams"};

class RingPolicy : public IOffloadPolicy {
 public:
  // `params` has kRingDepth and kRingLanes.
  explicit RingPolicy(const Params& params)
      : depth_(static_cast<std::uint32_t>(params.integer("depth"))),
        lanes_(static_cast<std::uint32_t>(params.integer("lanes"))) {}

  Layout layout(const ModelView& model, const Budget& budget) override {
    Layout out{.lanes = lanes_};
    for (const UnitKind kind : {UnitKind::attention, UnitKind::mlp, UnitKind::expert}) {
      const std::vector<UnitId> units = units_of(model, kind);
      const std::uint32_t slots = budget.slots[kind];
      // Nobody knows which experts come next: if one must rotate, all do.
      const std::uint32_t ring = kind == UnitKind::expert ? slots : std::min(depth_, slots);
      for (const std::size_t i :
           spread_evenly(slots < units.size() ? slots - ring : units.size(), units.size()))
        out.keep.push_back(units[i]);
    }
    return out;
  }

  void before(const Step& step, Actions& actions) override {
    for (const UnitId unit : step.needs) actions.prefetch(unit);
    for (const UnitId unit : step.soon) {
      ++place_;
      if (actions.prefetch(unit) == Asked::no_slot) break;
    }
    place_ = 0;
  }

  // The oldest that is not needed before the unit asked for; where there is none, the ring is full.
  UnitId victim(const UnitInfo&, const Candidates& candidates) override {
    for (UnitId unit = candidates.oldest(); unit != kNoUnit; unit = candidates.newer(unit))
      if (candidates.next_in(unit) > place_) return unit;
    return kNoUnit;
  }

 protected:
  RingPolicy(std::uint32_t depth, std::uint32_t lanes) : depth_(depth), lanes_(lanes) {}

  std::uint64_t place_ = 0;  // in `soon`, of the unit asked for; 0: it is needed now

 private:
  std::uint32_t depth_, lanes_;
};

// The ring over one quantised encoding.
class QuantisedRing : public RingPolicy {
 public:
  // `params` has quantised_ring_params() of the encoding's name.
  QuantisedRing(const Params& params, Encoding encoding)
      : RingPolicy(params),
        units_{encoding, params.text("resident") == "bf16" ? Encoding::native : encoding},
        head_(params.text("head") == "bf16" ? Encoding::native : encoding) {}

  // The head stays where it is, so that dequantising it would only cost memory.
  Transfer transfer(const ModelView&, const UnitInfo& unit) const override {
    return unit.kind == UnitKind::head ? Transfer{head_, head_} : units_;
  }

 private:
  Transfer units_;
  Encoding head_;
};

// `choices`: "bf16|int8", say; `encoding`: the second of them.
constexpr std::array<ParamSpec, 4> quantised_ring_params(const char* encoding,
                                                         const char* choices) {
  return {kRingDepth, kRingLanes,
          ParamSpec{"resident", ParamType::text, 0, 0, 0,
                    "how a unit lies in its slot: as it came, for kernels that read codes, or "
                    "dequantised to the model's own type (bf16)",
                    encoding, choices},
          ParamSpec{"head", ParamType::text, 0, 0, 0,
                    "how the LM head lies on the device, where it always stays", "bf16", choices}};
}

}  // namespace sluice
