// What passes chose, on its way from the device to the host: kept for the latest few passes, so that
// the host can run ahead.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/device/device.hpp"
#include "models/ops/ops.hpp"
#include "models/workspace.hpp"

namespace sluice {

class PassResults {
 public:
  // Of passes over up to `sequences` sequences the latest `kept`; logits are rows of `vocab` values
  // of `type`. References must outlive this.
  PassResults(Ops& ops, const WorkspaceLayout& device, std::uint32_t kept, std::uint32_t sequences,
              std::uint32_t vocab, DType type);

  // Enqueues the download of what the pass over `sequences` that was just enqueued has chosen. The
  // oldest kept pass is given up.
  void take(std::span<const std::uint32_t> sequences);

  // Of the `back`-th last pass, 0 the newest, one token per sequence in its order; the host waits
  // for it. Throws Error for a pass that is not kept, and for logits that were
  // not finite. Valid until that pass is given up.
  std::span<const std::int32_t> chosen(std::uint32_t back);
  // The newest pass's logits of one of its sequences, [vocab]; the host waits.
  std::vector<float> logits(std::uint32_t sequence);
  // True when `sequence` was in the newest pass.
  bool newest_has(std::uint32_t sequence) const;

 private:
  struct Pass {
    std::vector<std::uint32_t> sequences;
    std::vector<std::int32_t> tokens;
    Event arrived;
  };

  Ops& ops_;
  const WorkspaceLayout& device_;
  std::uint32_t width_, vocab_;
  DType type_;
  Buffer pinned_tokens_;  // [kept, width]
  Buffer pinned_logits_;  // [vocab]
  std::vector<Pass> ring_;
  std::uint64_t taken_ = 0;
};

}  // namespace sluice
