// What the host knows of each sequence, and its copy on the device, which the kernels read and move
// on by themselves: the two agree at every place of the compute stream.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/kv_cache.hpp"
#include "models/uploader.hpp"
#include "models/workspace.hpp"

namespace sluice {

class SequenceBook {
 public:
  // `device` says where the copy lies. References must outlive the book.
  SequenceBook(Ops& ops, PageTable& pages, const WorkspaceLayout& device,
               std::uint32_t passes_ahead);

  // These throw Error for a sequence that is not in the right state: none, begun, or filled by its
  // prompt.
  void start(std::uint32_t sequence, const SamplingParams& sampling);
  void finish(std::uint32_t sequence);
  void fill(std::uint32_t sequence, std::uint32_t prompt_tokens);
  // Room for one more token.
  void extend(std::uint32_t sequence);

  // Brings the device's copy up to date before a pass of `active`, in stream order; nothing when it
  // is.
  void upload(std::span<const std::uint32_t> active);
  // A sampling operation that moves these on by one position was enqueued.
  void moved_on(std::span<const std::uint32_t> sequences);

  // Positions filled once what is enqueued is done; its next token goes there.
  std::uint32_t length(std::uint32_t sequence) const {
    return static_cast<std::uint32_t>(lengths_[sequence]);
  }

 private:
  enum class State : std::uint8_t { none, begun, filled };
  void expect(std::uint32_t sequence, State state) const;

  PageTable& pages_;
  SamplingParams* device_;
  Uploader uploader_;
  std::vector<State> states_;
  std::vector<SamplingParams> params_;
  std::vector<std::int32_t> lengths_, generated_, active_;
  bool changed_ = true;
};

}  // namespace sluice
