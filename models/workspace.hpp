// The decoder's device memory beside weights and KV cache: activations, tables and the sequences'
// state, cut out of one block.
#pragma once
#include <cstdint>

#include "core/device/device.hpp"
#include "models/config.hpp"
#include "models/decoder.hpp"
#include "models/ops/kernels.hpp"

namespace sluice {

// Ids that can end a sequence, at most.
inline constexpr std::uint32_t kMaxStopIds = 64;

// T: the activation type. R: prefill_rows(). C: rows that go through an operation together, those of
// a piece of a prompt or of a decode pass. S: sequences. L: logit_rows(). V: vocab. P: pages of a
// sequence. E: experts of a layer, X: chosen for a token, I: width of one, N: layers.
struct WorkspaceLayout {
  std::byte* hidden = nullptr;      // T [R, hidden]: the residual stream
  std::byte* normed = nullptr;      // T [C, hidden]
  std::byte* wide = nullptr;        // T [C, q_size + 2 kv_size], or [C, 2 intermediate or 2 I]
  std::byte* narrow = nullptr;      // T [C, q_size], or [C, intermediate or I]
  std::byte* final_rows = nullptr;  // T [L, hidden]: what the head reads
  std::byte* logits = nullptr;      // T [L, V]
  float* cos = nullptr;             // [context, head_dim / 2]
  float* sin = nullptr;             // right behind cos
  std::int32_t* rows = nullptr;     // 3 x [n <= R], without gaps: tokens, sequences, positions
  // The book, uploaded as one:
  SamplingParams* params = nullptr;    // [S]
  std::int32_t* lengths = nullptr;     // [S]
  std::int32_t* generated = nullptr;   // [S]
  std::int32_t* active = nullptr;      // [S]: the sequences of a pass
  std::int32_t* page_table = nullptr;  // [S, P]

  std::int32_t* next_tokens = nullptr;  // [S]
  std::int32_t* chosen = nullptr;       // [S]: of a pass, in its order
  std::int32_t* stop_ids = nullptr;     // [kMaxStopIds]

  // Of a model with experts; else nothing.
  std::byte* scores = nullptr;               // T [C, E]: of the router
  std::byte* expert_rows = nullptr;          // T [R, hidden]: what experts read
  float* expert_sums = nullptr;              // [R, hidden]: of a prefill
  std::int32_t* expert_ids = nullptr;        // [R, X]
  float* expert_weights = nullptr;           // [R, X]
  std::int32_t* given_ids = nullptr;         // [R, X] of one layer, or [N, S, X]
  std::int32_t* expert_pairs = nullptr;      // [R, X]: of a prefill, expert by expert
  std::byte* pair_inner = nullptr;           // T [S, X, 2 I]
  std::byte* pair_results = nullptr;         // T [S, X, hidden]
  const std::byte** expert_slabs = nullptr;  // [N, E]

  std::uint64_t bytes = 0;
};

// R: rows of prompts that the workspace takes through the layers together.
std::uint32_t prefill_rows(const DecoderLimits& limits);

// L: rows of logits that the workspace holds.
std::uint32_t logit_rows(const DecoderLimits& limits);

// Cuts the block at `base`, which may be null where only `bytes` is wanted.
WorkspaceLayout lay_out_workspace(void* base, const ModelConfig& config, DType type,
                                  const DecoderLimits& limits);

}  // namespace sluice
