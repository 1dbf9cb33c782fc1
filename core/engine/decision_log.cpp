#include "core/engine/decision_log.hpp"

#include <fmt/format.h>

#include "core/engine/decision_names.hpp"

namespace sluice {
namespace {

std::string id_text(UnitId unit) { return unit == kNoUnit ? "null" : std::to_string(unit); }

}  // namespace

void DecisionLog::transfer(UnitId unit, Transfer transfer) {
  if (transfers_.empty() || transfers_.back().transfer != transfer ||
      transfers_.back().last + 1 != unit)
    transfers_.push_back({transfer, unit, unit});
  transfers_.back().last = unit;
}

void DecisionLog::layout(const Layout& layout) {
  if (closed_) return;
  for (const Run& run : transfers_)
    out_ << fmt::format(R"({{"transfer":{{"wire":"{}","resident":"{}"}},"units":[{},{}]}})"
                        "\n",
                        name_of(run.transfer.wire), name_of(run.transfer.resident), run.first,
                        run.last);
  std::string rotating;
  for (std::size_t i = 0; i < kUnitKinds; ++i) {
    const auto kind = static_cast<UnitKind>(i);
    if (layout.rotating[kind] != 0)
      rotating += fmt::format(R"({}"{}":{})", rotating.empty() ? "" : ",", name_of(kind),
                              layout.rotating[kind]);
  }
  out_ << fmt::format(R"({{"layout":{{"keep":{},"rotating":{{{}}},"lanes":{},"blocking":{}}}}})"
                      "\n",
                      list_text(layout.keep), rotating, layout.lanes, layout.blocking);
}

void DecisionLog::step(const Step& step) {
  step_ = step.index;
  line(fmt::format(R"("phase":"{}","tokens":{},"needs":{})", name_of(step.phase), step.tokens,
                   list_text(step.needs)));
}

void DecisionLog::wanted_guesses(std::uint32_t count) {
  line(fmt::format(R"("guesses":{})", count));
}

void DecisionLog::routed(std::span<const UnitId> units) {
  line(fmt::format(R"("routed":{})", list_text(units)));
}

void DecisionLog::wish(UnitId unit, Asked answer) {
  line(fmt::format(R"("wish":{},"answer":"{}")", unit, name_of(answer)));
}

void DecisionLog::drop(UnitId unit, bool refused) {
  line(fmt::format(R"("drop":{},"refused":{})", unit, refused));
}

void DecisionLog::victim(UnitId named, UnitId incoming, bool refused) {
  line(fmt::format(R"("victim":{},"for":{},"refused":{})", id_text(named), incoming, refused));
}

void DecisionLog::evicted(UnitId unit, UnitId incoming) {
  line(fmt::format(R"("evicted":{},"for":{})", unit, id_text(incoming)));
}

void DecisionLog::refused_place(UnitId unit, Place place) {
  line(fmt::format(R"("place":{},"at":"{}","refused":true)", unit, name_of(place)));
}

void DecisionLog::line(const std::string& rest) {
  if (!closed_) out_ << fmt::format("{{\"step\":{},{}}}\n", step_, rest);
}

}  // namespace sluice
