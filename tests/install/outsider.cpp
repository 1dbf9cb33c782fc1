#include "sluice/helpers.hpp"

namespace {

class Outsider final : public sluice::IOffloadPolicy {
 public:
  explicit Outsider(const sluice::Params& params) : ahead_(params.integer("ahead")) {}

  void before(const sluice::Step& step, sluice::Actions& actions) override {
    const auto ahead = static_cast<std::size_t>(ahead_);
    for (const sluice::UnitId unit : step.soon.first(std::min(ahead, step.soon.size())))
      actions.prefetch(unit);
  }

 private:
  std::int64_t ahead_;
};

constexpr std::array kParams{
    sluice::ParamSpec{"ahead", sluice::ParamType::integer, 1, 0, 8, "units to ask for ahead"}};

}  // namespace

SLUICE_POLICY(Outsider, outsider, "1.0", "asks for the next few units", kParams);
