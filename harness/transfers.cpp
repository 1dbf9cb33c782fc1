#include "harness/transfers.hpp"

#include "core/engine/budget.hpp"
#include "core/engine/guarded_policy.hpp"

namespace sluice {
namespace {

Encoding encoding_named(std::string_view name) {
  for (const Encoding encoding : {Encoding::int8, Encoding::int4})
    if (name == name_of(encoding)) return encoding;
  return Encoding::native;
}

std::function<Transfer(const UnitInfo&)> of_resident(const ParamValues& values) {
  const CheckedParams params(std::string(kResidentPolicy), kResidentParams, values);
  const Encoding wire = encoding_named(params.text("wire"));
  const Transfer units{wire, params.text("resident") == "wire" ? wire : Encoding::native};
  const Encoding head = params.text("head") == "wire" ? wire : Encoding::native;
  return [=](const UnitInfo& unit) {
    return unit.kind == UnitKind::head ? Transfer{head, head} : units;
  };
}

}  // namespace

std::vector<Transfer> transfers_of(const PreparedCell& cell, IOffloadPolicy* policy,
                                   const ModelView& view) {
  const PolicyChoice& choice = cell.experiment.policy;
  TransferOf transfer = [](const UnitInfo&) { return Transfer{}; };
  if (!cell.transfers.empty())
    transfer = [&](const UnitInfo& unit) { return cell.transfers[unit.id]; };
  else if (policy)
    transfer = [&](const UnitInfo& unit) {
      return GuardedPolicy(*policy, choice.name).transfer(view, unit);
    };
  else if (cell.is_resident())
    transfer = of_resident(choice.params);

  std::vector<Transfer> out(view.units.size());
  for (const UnitInfo& unit : view.units)
    if (unit.kind != UnitKind::embedding) out[unit.id] = transfer(unit);
  footprint_of(view, [&](const UnitInfo& unit) { return out[unit.id]; });  // throws what is wrong
  return out;
}

std::vector<EncodingSet> stored_for(const ModelView& view, const std::vector<Transfer>& transfers) {
  std::vector<EncodingSet> sets;
  for (const UnitInfo& unit : view.units)
    sets.push_back(unit.kind == UnitKind::embedding ? Encoding::native : transfers[unit.id].wire);
  return sets;
}

std::string weights_text(const ModelView& view, const std::vector<Transfer>& transfers) {
  std::string out;
  for (UnitId first = 0; first < view.units.size();) {
    if (view.units[first].kind == UnitKind::embedding) {
      ++first;
      continue;
    }
    UnitId end = first + 1;
    while (end < view.units.size() && view.units[end].kind != UnitKind::embedding &&
           transfers[end] == transfers[first])
      ++end;
    const auto [wire, resident] = transfers[first];
    out += fmt::format(
        "{}{} {}{}", out.empty() ? "" : ", ",
        end == first + 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1),
        name_of(wire), wire == resident ? "" : fmt::format(" as {}", name_of(resident)));
    first = end;
  }
  return out;
}

}  // namespace sluice
