#include "tests/models/same_decisions.hpp"

#include <string>
#include <vector>

#include "core/device/sim_device.hpp"
#include "core/engine/engine.hpp"
#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"

namespace sluice::test {
namespace {

Machine machine_with(double link_gbps, double memory_gbps) {
  return {.name = "made up",
          .device_memory_bytes = 1ull << 30,
          .host_memory_bytes = 1ull << 30,
          .h2d = {{{4096, link_gbps}}},
          .d2h = {{{4096, link_gbps}}},
          .memory_gbps = memory_gbps,
          .matrix_tflops = 1,
          .host_read_gbps = 10,
          .op_ns = 1000,
          .copy_ns = 500,
          .enqueue_ns = 200,
          .event_ns = 100,
          .sync_ns = 5000};
}

// Writes down everything that passes between a policy and the engine, a line each.
class LoggedPolicy final : public IOffloadPolicy {
 public:
  explicit LoggedPolicy(IOffloadPolicy& inner) : inner_(inner) {}

  Layout layout(const ModelView& model, const Budget& budget) override {
    return inner_.layout(model, budget);
  }
  Transfer transfer(const UnitInfo& unit) const override { return inner_.transfer(unit); }
  void before(const Step& step, Actions& actions) override {
    lines_.push_back(
        fmt::format("step {} of {} tokens needs {}", step.index, step.tokens, step.needs.front()));
    LoggedActions logged(actions, lines_);
    inner_.before(step, logged);
  }
  void routed(std::span<const UnitId> units, Actions& actions) override {
    LoggedActions logged(actions, lines_);
    inner_.routed(units, logged);
  }
  UnitId victim(const UnitInfo& incoming, const Candidates& candidates) override {
    std::string line = fmt::format("for {} of", incoming.id);
    for (UnitId unit = candidates.oldest(); unit != kNoUnit; unit = candidates.newer(unit))
      line += fmt::format(" {}", unit);
    const UnitId victim = inner_.victim(incoming, candidates);
    lines_.push_back(line + fmt::format(": {}", victim));
    return victim;
  }
  Place place(const UnitInfo& unit, const Step& step) override { return inner_.place(unit, step); }

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  class LoggedActions final : public Actions {
   public:
    LoggedActions(Actions& inner, std::vector<std::string>& lines) : inner_(inner), lines_(lines) {}
    Asked prefetch(UnitId unit) override {
      const Asked answer = inner_.prefetch(unit);
      lines_.push_back(fmt::format("prefetch {}: {}", unit, static_cast<int>(answer)));
      return answer;
    }
    void drop(UnitId unit) override {
      lines_.push_back(fmt::format("drop {}", unit));
      inner_.drop(unit);
    }
    bool has_slot(UnitId unit) const override { return inner_.has_slot(unit); }
    bool is_kept(UnitId unit) const override { return inner_.is_kept(unit); }
    std::uint32_t rotating_slots(UnitKind kind) const override {
      return inner_.rotating_slots(kind);
    }
    std::uint32_t free_slots(UnitKind kind) const override { return inner_.free_slots(kind); }

   private:
    Actions& inner_;
    std::vector<std::string>& lines_;
  };

  IOffloadPolicy& inner_;
  std::vector<std::string> lines_;
};

struct Decided {
  Counters book;
  std::vector<std::string> lines;
};

Decided run(ModelRig& rig, const PolicyCase& one, std::uint32_t budget, std::uint32_t batch) {
  const PolicyPtr policy = policy_of(one);
  LoggedPolicy logged(*policy);
  Engine engine(rig.device(), rig.compute(), rig.weights(), logged, one.name, LayerBudget{budget},
                {.chunk_bytes = 4096});
  const auto decoder = rig.decoder({.context = 80, .sequences = batch});
  Generator generator(rig.device(), *decoder, engine, {});
  generator.run(requests_for(rig.config().vocab), batch);
  return {engine.counters(), logged.lines()};
}

}  // namespace

std::size_t compare_decisions(const std::filesystem::path& checkpoint) {
  ModelRig cpu(checkpoint);
  ModelRig slow_link(checkpoint, {}, make_sim_device(machine_with(0.01, 1)));
  ModelRig fast_link(checkpoint, {}, make_sim_device(machine_with(10, 0.1)));
  const auto layers = static_cast<std::uint32_t>(cpu.config().layers);
  std::size_t compared = 0;
  for (const std::uint32_t batch : {1u, 3u})
    for (const PolicyCase& one : policy_cases())
      for (std::uint32_t budget = 1; budget <= layers + 1; ++budget) {
        CAPTURE(checkpoint.filename(), one.name, one.depth, budget, batch);
        const Decided expected = run(cpu, one, budget, batch);
        CHECK_FALSE(expected.lines.empty());
        for (ModelRig* sim : {&slow_link, &fast_link}) {
          Decided decided = run(*sim, one, budget, batch);
          // How far a guess got depends on the link; nothing else may.
          decided.book.cancelled_bytes = expected.book.cancelled_bytes;
          CHECK(decided.book == expected.book);
          CHECK((decided.lines == expected.lines));
          ++compared;
        }
      }
  return compared;
}

}  // namespace sluice::test
