// One cell, set up and ready to generate: device, decoder, policy and engine.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/device/audit_device.hpp"
#include "core/device/sim_device.hpp"
#include "core/device/trace_device.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/mapped_provider.hpp"
#include "core/engine/resident_provider.hpp"
#include "harness/decision_file.hpp"
#include "harness/phase_meter.hpp"
#include "harness/prepare.hpp"
#include "harness/transfers.hpp"
#include "models/generator.hpp"
#include "models/routing_file.hpp"

namespace sluice {

class Session {
 public:
  // Packs the model's weights in the encodings that the policy asks for. `cell` and `models` must
  // outlive the session. Throws InputError when it does not fit the memory limit, or a simulated
  // machine's host memory, with the figures and what would fit. `poison`: evicted slots are filled
  // with NaN, for checks.
  Session(const PreparedCell& cell, ModelCache& models, bool poison = false);

  IDevice& device() { return *device_; }
  // Names what follows in the trace, if there is one.
  void begin_section(const std::string& name);
  // What the policy decides from now on is not in the log of decisions, which ends with the counters
  // and this hash (null: there are no tokens).
  void end_decisions(const nlohmann::json& tokens_hash);
  // What the routers choose from now on is not in the file of routing, which is complete.
  void end_routing();
  // Another run over the same prompts begins: synthetic routing begins anew.
  void begin_run();
  // What the policy wants the user to know; see Layout::notes.
  std::vector<std::string> notes() const;
  // Gives everything on the device back and completes the files. Returns the races that were found.
  // Nothing but this can be asked afterwards.
  std::vector<Race> finish();
  Generator& generator() { return *generator_; }
  // Decoder::score() of one window of text; `last`: no other follows.
  void score(std::span<const std::int32_t> tokens, bool last, const LogitSink& sink) {
    decoder_->score(*meter_, 0, tokens, last, sink);
  }
  const PhaseBook& phases() const { return meter_->book(); }
  const Counters& counters() const { return provider().counters(); }
  // How long the compute stream has waited for weights.
  std::uint64_t stall_ns() { return device_->stall_ns(compute_); }
  // How long each resource has worked, where the device is simulated.
  BusyTimes busy() { return sim_ ? sim_->busy() : BusyTimes{}; }
  std::uint64_t pinned_bytes() const;  // of the weights and of everything else
  std::uint64_t unpinned_bytes() const { return weights_->unpinned_bytes(); }
  // Null: resident or mapped.
  const EngineShape* shape() const { return engine_ ? &engine_->shape() : nullptr; }
  std::uint64_t kept_bytes() const;  // on the device from the start
  // See weights_text(): where it is the same, so are the results, bit for bit.
  std::string weights() const { return weights_text(weights_->view(), transfers_); }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  // Bytes that any policy has to move in one pass with these slots: per kind, the smallest of the units
  // that a pass needs beyond the slots. Of experts it needs those of one token at least, whatever the
  // router says. Mapped: of all that it needs.
  std::uint64_t least_bytes_per_pass() const;
  // A pass needs more than the device's slots hold, so a run that moves nothing cannot be right.
  bool must_move() const;

 private:
  IDevice* instrumented(const PreparedCell& cell);
  RoutingHooks routing_hooks(const PreparedCell& cell);
  void make_provider(const PreparedCell& cell, bool poison);
  std::uint32_t slots_of(UnitKind kind) const;  // of the engine's; else 0
  void check_host_memory(const PreparedCell& cell) const;
  ILayerProvider& provider() const;
  Transfer transfer(const UnitInfo& unit) const { return transfers_[unit.id]; }
  [[noreturn]] void explain_memory(const PreparedCell& cell, const std::string& what);

  ModelLayout layout_;               // asked about before there are weights; outlives the policy
  PolicyPtr policy_;                 // null: a reserved one
  std::vector<Transfer> transfers_;  // index: UnitId
  std::shared_ptr<const WeightStore> weights_;
  std::unique_ptr<IDevice> hardware_;
  SimDevice* sim_ = nullptr;  // that, where it is simulated
  std::unique_ptr<TraceDevice> trace_;
  std::unique_ptr<AuditDevice> audit_;
  IDevice* device_;  // the topmost of these
  StreamId compute_ = 0;
  std::unique_ptr<SyntheticRouting> routing_;  // null: the routers'
  std::unique_ptr<RoutingFile> routing_file_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<DecisionFile> decisions_;
  std::unique_ptr<Engine> engine_;              // or
  std::unique_ptr<ResidentProvider> resident_;  // or
  std::unique_ptr<MappedProvider> mapped_;
  std::unique_ptr<PhaseMeter> meter_;
  std::unique_ptr<Generator> generator_;
};

// The link's rate from pinned host memory to `device`, in 1e9 bytes per second: the best of a few
// large copies.
double measure_link_gbps(IDevice& device);

}  // namespace sluice
