// Tells apart what prefill and what decoding moved: sits between the forward pass and the engine.
#pragma once
#include "core/engine/layer_provider.hpp"

namespace sluice {

struct PhaseBook {
  Counters prefill, decode;
  std::uint64_t decode_passes = 0;
  std::uint64_t decode_rows = 0;  // tokens that those passes computed, those after a stop included
};

constexpr PhaseBook operator-(const PhaseBook& a, const PhaseBook& b) {
  return {a.prefill - b.prefill, a.decode - b.decode, a.decode_passes - b.decode_passes,
          a.decode_rows - b.decode_rows};
}

class PhaseMeter final : public ILayerProvider {
 public:
  // `first_unit` begins each pass.
  PhaseMeter(ILayerProvider& inner, UnitId first_unit)
      : inner_(inner), first_unit_(first_unit), seen_(inner.counters()) {}

  Lease acquire(const Step& step) override;
  std::uint32_t wanted_guesses(const Step& step) override { return inner_.wanted_guesses(step); }
  void routed(std::span<const UnitId> units) override { inner_.routed(units); }
  std::optional<Weights> kept(UnitId unit) const override { return inner_.kept(unit); }
  std::uint32_t capacity(UnitKind kind) const override { return inner_.capacity(kind); }
  const Counters& counters() const override { return inner_.counters(); }
  bool is_fixed() const override { return inner_.is_fixed(); }

  const PhaseBook& book() const { return book_; }

 private:
  // The lease that acquire() hands out is the inner provider's own.
  Weights use(const Step&, std::size_t) override { return {}; }
  void close(const Step&) noexcept override {}

  ILayerProvider& inner_;
  UnitId first_unit_;
  Counters seen_;
  PhaseBook book_;
};

}  // namespace sluice
