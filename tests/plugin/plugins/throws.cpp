// Throws from the hook that its parameter names.
#include <set>
#include <stdexcept>
#include <string>

#include "sluice/helpers.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{
    ParamSpec{"hook", ParamType::text, 0, 0, 0,
              "factory, layout, transfer, transfer_again, before, routed, victim or place"},
    ParamSpec{"odd", ParamType::boolean, 0, 0, 0, "throw a number instead of an exception"},
};

class Throws final : public IOffloadPolicy {
 public:
  explicit Throws(const Params& params) : hook_(params.text("hook")), odd_(params.boolean("odd")) {
    in("factory");
  }
  Layout layout(const ModelView&, const Budget&) override {
    in("layout");
    return {};
  }
  Transfer transfer(const ModelView&, const UnitInfo& unit) const override {
    in("transfer");
    if (!asked_.insert(unit.id).second) in("transfer_again");
    return {};
  }
  void before(const Step&, Actions&) override { in("before"); }
  void routed(std::span<const UnitId>, Actions&) override { in("routed"); }
  UnitId victim(const UnitInfo&, const Candidates& candidates) override {
    in("victim");
    return candidates.oldest();
  }
  Place place(const UnitInfo&, const Step&) override {
    in("place");
    return Place::device;
  }

 private:
  void in(const char* hook) const {
    if (hook_ != hook) return;
    if (odd_) throw 42;
    throw std::runtime_error(std::string("thrown from ") + hook);
  }

  std::string hook_;
  bool odd_;
  mutable std::set<UnitId> asked_;
};

}  // namespace

SLUICE_POLICY(Throws, throws, "1.0", "throws from the hook it is told", kParams);
