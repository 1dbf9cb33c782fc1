// Budgets against figures worked out by hand.
#include "core/engine/budget.hpp"

#include "core/error.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

// Four layers of attention (1000 bytes: 1024 in a slot) and mlp (2000: 2048), a head of 5000; the
// third mlp is smaller. In int8 half of it.
std::vector<UnitInfo> dense_units() {
  std::vector<UnitInfo> units;
  const auto add = [&](UnitKind kind, std::int32_t layer, std::int32_t expert,
                       std::uint64_t bytes) {
    units.push_back(
        {static_cast<UnitId>(units.size()), kind, layer, expert, {bytes, bytes / 2, 0}});
  };
  add(UnitKind::embedding, 0, -1, 7000);
  for (std::int32_t layer = 0; layer < 4; ++layer) {
    add(UnitKind::attention, layer, -1, 1000);
    add(UnitKind::mlp, layer, -1, layer == 2 ? 1500 : 2000);
  }
  add(UnitKind::head, 4, -1, 5000);
  return units;
}

// Two layers of attention (1024) and 8 experts (256 each), a head of 512.
std::vector<UnitInfo> expert_units() {
  std::vector<UnitInfo> units;
  const auto add = [&](UnitKind kind, std::int32_t layer, std::int32_t expert,
                       std::uint64_t bytes) {
    units.push_back({static_cast<UnitId>(units.size()), kind, layer, expert, {bytes, 0, 0}});
  };
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    add(UnitKind::attention, layer, -1, 1024);
    for (std::int32_t e = 0; e < 8; ++e) add(UnitKind::expert, layer, e, 256);
  }
  add(UnitKind::head, 2, -1, 512);
  return units;
}

struct Model {
  std::vector<UnitInfo> units;
  ModelView view;
};

Model dense() {
  Model m{dense_units(), {}};
  m.view = {m.units, {}, 4, 0, 0};
  return m;
}

Model experts() {
  Model m{expert_units(), {}};
  m.view = {m.units, {}, 2, 8, 2};
  return m;
}

Transfer native(const UnitInfo&) { return {}; }

std::array<std::uint32_t, 3> slots_of(const Budget& b) {
  return {b.slots[UnitKind::attention], b.slots[UnitKind::mlp], b.slots[UnitKind::expert]};
}
using Slots = std::array<std::uint32_t, 3>;

std::string refusal(const Model& model, const BudgetSpec& spec) {
  try {
    resolve_budget(model.view, spec, native);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a layer budget gives slots of each kind and is cut to the model") {
  const Model d = dense(), e = experts();
  for (std::uint32_t n = 1; n <= 4; ++n) {
    const Budget b = resolve_budget(d.view, LayerBudget{n}, native);
    CHECK(slots_of(b) == Slots{n, n, 0});
    CHECK(b.bytes == 0);
  }
  CHECK(slots_of(resolve_budget(d.view, LayerBudget{5}, native)) == Slots{4, 4, 0});
  CHECK(slots_of(resolve_budget(d.view, LayerBudget{~0u}, native)) == Slots{4, 4, 0});
  CHECK(slots_of(resolve_budget(e.view, LayerBudget{1}, native)) == Slots{1, 0, 8});
  CHECK(slots_of(resolve_budget(e.view, LayerBudget{9}, native)) == Slots{2, 0, 16});
  CHECK(refusal(d, LayerBudget{0}) ==
        "gpu_layer_budget is 0; it must be at least 1, and 4 holds this whole model");
}

TEST_CASE("bytes give the most whole layers beside head and staging") {
  const Model d = dense();
  const std::uint64_t layer = 1024 + 2048, head = 5000;
  for (std::uint32_t n = 1; n <= 4; ++n) {
    const Budget exact = resolve_budget(d.view, ByteBudget{head + n * layer}, native);
    CHECK(slots_of(exact) == Slots{n, n, 0});
    CHECK(exact.bytes == n * layer);
    const Budget more = resolve_budget(d.view, ByteBudget{head + n * layer + layer - 1}, native);
    CHECK(slots_of(more) == Slots{n, n, 0});
  }
  CHECK(slots_of(resolve_budget(d.view, ByteBudget{1ull << 40}, native)) == Slots{4, 4, 0});
  CHECK(refusal(d, ByteBudget{head + layer - 1}) ==
        "the budget of 8071 bytes does not hold the head (5000 bytes), staging (0 bytes) and one "
        "slot of each kind (3072 bytes); the smallest that does is 8072 bytes");
}

TEST_CASE("auto is the layer budget of what is free") {
  const Model d = dense(), e = experts();
  const std::uint64_t layer = 1024 + 2048, head = 5000;
  for (std::uint32_t n = 1; n <= 4; ++n) {
    for (const std::uint64_t more : {std::uint64_t{0}, layer - 1}) {
      const Budget b = resolve_budget(d.view, AutoBudget{head + n * layer + more}, native);
      CHECK(slots_of(b) == Slots{n, n, 0});
      CHECK(b.bytes == 0);
      CHECK(layers_in(d.view, footprint_of(d.view, native), b.slots) == n);
    }
  }
  CHECK(refusal(d, AutoBudget{8071}) ==
        "what the memory limit leaves, 8071 bytes, does not hold the head (5000 bytes), staging (0 "
        "bytes) and one slot of each kind (3072 bytes); the smallest that does is 8072 bytes");
  // Less than a layer of experts: what fits, and no layer.
  const std::uint64_t one = 512 + 1024 + 256;
  const Budget few = resolve_budget(e.view, AutoBudget{one + 3 * 256}, native);
  CHECK(slots_of(few) == Slots{1, 0, 4});
  CHECK(few.bytes == one + 3 * 256 - 512);
  CHECK(layers_in(e.view, footprint_of(e.view, native), few.slots) == 0);
}

TEST_CASE("quantised units take smaller slots and converted ones staging") {
  const Model d = dense();
  const TransferOf small = [](const UnitInfo& unit) {
    return unit.kind == UnitKind::head ? Transfer{} : Transfer{Encoding::int8, Encoding::int8};
  };
  // 512 and 1024 (1000 rounded up).
  const std::uint64_t layer = 512 + 1024;
  CHECK(slots_of(resolve_budget(d.view, ByteBudget{5000 + 3 * layer}, small)) == Slots{3, 3, 0});
  const TransferOf converted = [](const UnitInfo& unit) {
    return unit.kind == UnitKind::mlp ? Transfer{Encoding::int8, Encoding::native} : Transfer{};
  };
  CHECK(staging_bytes(d.view, native) == 0);
  CHECK(staging_bytes(d.view, converted) == 2 * 1024);  // rounded up
  CHECK(slots_of(resolve_budget(d.view, ByteBudget{5000 + 2048 + 2 * 3072}, converted)) ==
        Slots{2, 2, 0});
  const Budget b = resolve_budget(d.view, ByteBudget{5000 + 2048 + 2 * 3072 - 1}, converted);
  CHECK(slots_of(b) == Slots{1, 1, 0});
  CHECK(b.bytes == 2048 + 2 * 3072 - 1);
}

TEST_CASE("expert slots leave every other kind whole") {
  const Model d = dense(), e = experts();
  CHECK(slots_of(resolve_budget(e.view, ExpertBudget{1}, native)) == Slots{2, 0, 1});
  CHECK(slots_of(resolve_budget(e.view, ExpertBudget{16}, native)) == Slots{2, 0, 16});
  CHECK(slots_of(resolve_budget(e.view, ExpertBudget{17}, native)) == Slots{2, 0, 16});
  CHECK(refusal(e, ExpertBudget{0}) ==
        "expert_slots is 0; it must be at least 1, and 16 holds all experts");
  CHECK(refusal(d, ExpertBudget{4}) ==
        "expert_slots is 4, but this model has no experts; use gpu_layer_budget");
}

TEST_CASE("bytes for less than a layer of experts go to experts") {
  const Model e = experts();
  const std::uint64_t one = 512 + 1024 + 256;
  CHECK(slots_of(resolve_budget(e.view, ByteBudget{one}, native)) == Slots{1, 0, 1});
  CHECK(slots_of(resolve_budget(e.view, ByteBudget{one + 3 * 256 + 255}, native)) ==
        Slots{1, 0, 4});
  CHECK(slots_of(resolve_budget(e.view, ByteBudget{512 + 1024 + 8 * 256}, native)) ==
        Slots{1, 0, 8});
  CHECK(slots_of(resolve_budget(e.view, ByteBudget{512 + 2 * (1024 + 8 * 256)}, native)) ==
        Slots{2, 0, 16});
  CHECK(refusal(e, ByteBudget{one - 1}).find("the smallest that does is 1792 bytes") !=
        std::string::npos);
}

TEST_CASE("a footprint counts what moves") {
  const Model d = dense();
  const Footprint f = footprint_of(d.view, native);
  CHECK(f.units[UnitKind::attention] == 4);
  CHECK(f.units[UnitKind::head] == 0);
  CHECK(f.slot_bytes[UnitKind::attention] == 1024);
  CHECK(f.slot_bytes[UnitKind::mlp] == 2048);
  CHECK(f.head_bytes == 5000);
  CHECK(f.staging_bytes == 0);
  CHECK(f.bytes_of(f.slots_for(3)) == 3 * 3072);
}

}  // namespace sluice::test
