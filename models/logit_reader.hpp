// Logits of many rows on their way from the device to the host, a few rows at a time: the device
// computes the next ones while the host is at work on some.
#pragma once
#include <cstdint>
#include <functional>

#include "core/device/device.hpp"
#include "models/decoder.hpp"
#include "models/ops/ops.hpp"
#include "models/workspace.hpp"

namespace sluice {

class LogitReader {
 public:
  // Enqueues the head for rows [first, first + count), their logits to the workspace's first ones.
  using Head = std::function<void(std::uint32_t first, std::uint32_t count)>;

  // Up to `rows` rows of `vocab` logits of `type` at once. References must outlive this, and the
  // stream must be done before this ends.
  LogitReader(Ops& ops, const WorkspaceLayout& device, std::uint32_t rows, std::uint32_t vocab,
              DType type);

  // Calls `sink` for rows [0, count), in order; never where the device does not execute.
  void read(std::uint32_t count, const Head& head, const LogitSink& sink);

 private:
  struct Group {
    std::uint32_t first = 0, count = 0;
    Event arrived;
  };

  std::byte* slot(const Group& group) const;
  void hand_out(const Group& group, const LogitSink& sink) const;

  Ops& ops_;
  const WorkspaceLayout& device_;
  std::uint32_t rows_;
  std::uint64_t row_bytes_;
  Buffer pinned_;  // two slots of [rows, vocab]
};

}  // namespace sluice
