// What a decoder's operations are asked to do: shapes, types and addresses, plain values that any
// device's kernel can take.
//
// Rounding, where the activation type is narrower than f32, is the reference's: sums in f32, one
// rounding where a result is named below. Weights may be of a wider or the same type.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"
#include "sluice/unit.hpp"

namespace sluice {

// Tokens per page of the KV cache.
inline constexpr std::uint32_t kPageTokens = 64;

// One layer's KV cache. A page is [K, V][kv_heads][kPageTokens][head_dim] of the activation type.
struct KvLayer {
  std::byte* pages = nullptr;  // of this layer; page p at p * page_bytes
  std::uint64_t page_bytes = 0;
  std::uint64_t page_count = 0;
  const std::int32_t* page_table = nullptr;  // [sequences][pages_per_sequence], page numbers
  std::uint32_t sequences = 0;
  std::uint32_t pages_per_sequence = 0;
  std::uint32_t kv_heads = 0, head_dim = 0;
};

// The rows of one pass, in device memory: row r is token tokens[r] of sequence sequences[r], at
// positions[r] in it.
struct RowIndex {
  const std::int32_t* tokens = nullptr;
  const std::int32_t* sequences = nullptr;
  const std::int32_t* positions = nullptr;
  std::uint32_t count = 0;
};

struct EmbedArgs {
  RowIndex rows;
  const std::byte* table = nullptr;  // host memory, [vocab, hidden]
  DType table_type = DType::bf16;
  void* out = nullptr;  // [rows, hidden]
  DType type = DType::bf16;
  std::uint32_t vocab = 0, hidden = 0;
};

// out = round(round(x / rms(x)) * weight); the mean of squares in f32.
struct RmsNormArgs {
  const void* x = nullptr;  // [rows, cols]
  const std::byte* weight = nullptr;
  DType weight_type = DType::bf16;
  void* out = nullptr;
  DType type = DType::bf16;
  std::uint32_t rows = 0, cols = 0;
  float eps = 0;
};

// y = round(x W^T + bias); with a residual, residual = round(residual + y) and `out`, which may be
// null where the device does not need it, is scratch.
struct LinearArgs {
  const void* x = nullptr;            // [rows, k]
  const std::byte* weight = nullptr;  // [n, k] of weight_type, or codes
  DType weight_type = DType::bf16;
  // Where it is not native, the weights are codes as core/weights/encoding.hpp lays them out. A few
  // rows are multiplied with scale * (code - zero) as it is; for many, each weight may be rounded to
  // weight_type before, as dequantising gives it.
  Encoding encoding = Encoding::native;
  const std::byte* scales = nullptr;
  const std::byte* bias = nullptr;  // [n] of bias_type, or null
  DType bias_type = DType::bf16;
  void* residual = nullptr;  // [rows, n] of `type`, or null; updated in place
  void* out = nullptr;       // [rows, n] of `type`
  DType type = DType::bf16;
  std::uint32_t rows = 0, n = 0, k = 0;
};

// Normalises each head of q and k (where weights are given), rotates them, and stores k and v.
// The rotation: y = round(round(x * cos) + round(rotate_half(x) * sin)), cos and sin rounded first.
struct RopeStoreArgs {
  void* qkv = nullptr;  // [rows, (heads + 2 * kv_heads) * head_dim]; q is rotated in place
  DType type = DType::bf16;
  RowIndex rows;
  std::uint32_t heads = 0;
  const std::byte* q_norm = nullptr;  // [head_dim] of norm_type, or null
  const std::byte* k_norm = nullptr;
  DType norm_type = DType::bf16;
  float eps = 0;
  const float* cos = nullptr;  // [context, head_dim / 2]
  const float* sin = nullptr;
  std::uint32_t context = 0;  // rows of cos and sin
  KvLayer kv;
};

// Causal attention of each row over its sequence up to its own position, grouped queries. Scores and
// softmax in f32, the output rounded. The sum runs over spans of positions, of one size on each
// device, merged ascending.
struct AttentionArgs {
  const void* qkv = nullptr;  // as above; only q is read
  DType type = DType::bf16;
  RowIndex rows;
  std::uint32_t heads = 0;
  float scale = 0;
  KvLayer kv;
  void* out = nullptr;       // [rows, heads * head_dim]
  bool consecutive = false;  // the rows are consecutive positions of one sequence, as in a prefill
  // What the host knows of the positions; the last two are for the operation's bytes and
  // floating-point operations:
  std::uint32_t longest = 0;   // no row sees more positions than this; 0: than the cache can hold
  std::uint64_t attended = 0;  // positions each row sees, summed over the rows: at least `rows`
  std::uint64_t cached = 0;    // positions of the cache that are read, each sequence's once
};

// out = round(round(silu(gate)) * up)
struct SiluMulArgs {
  const void* gate_up = nullptr;  // [rows, 2 * inter]: gate, then up
  void* out = nullptr;            // [rows, inter]
  DType type = DType::bf16;
  std::uint32_t rows = 0, inter = 0;
};

// Operations that follow each other, for devices that do better with them in one. Results are those
// of the parts, bit for bit; what lies between them need not be written.

// linear.x is norm.out.
struct NormLinearArgs {
  RmsNormArgs norm;
  LinearArgs linear;
  bool keeps_normed = false;  // norm.out is written: something else reads it, too
};

// gate_up.x is norm.out and has no residual; silu.gate_up is gate_up.out.
struct GatedArgs {
  RmsNormArgs norm;
  LinearArgs gate_up;
  SiluMulArgs silu;
};

// Both on the same rows and cache. Unless they are consecutive, each row is of another sequence. On
// CUDA all that they read but for qkv must have been written before the operation that writes qkv
// was enqueued, and that operation is a norm_linear.
struct RopeAttentionArgs {
  RopeStoreArgs rope;
  AttentionArgs attention;
};

// One sequence's way of choosing; kept on the device.
struct SamplingParams {
  float temperature = 0;   // 0: greedy, ties to the lower id; the rest is unused then
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  std::uint64_t seed = 0;
  std::uint32_t min_new_tokens = 0;  // stop ids cannot be chosen before
};

// In `chosen`, where a device cannot throw: the row's logits were not all finite.
inline constexpr std::int32_t kNotFinite = -1;

// Chooses the next token of each row's sequence and moves that sequence on by one position.
struct SampleArgs {
  const void* logits = nullptr;  // [rows, vocab] of `type`
  DType type = DType::bf16;
  std::uint32_t rows = 0, vocab = 0;
  const std::int32_t* sequences = nullptr;  // [rows]
  const SamplingParams* params = nullptr;   // [sequences]
  const std::int32_t* stop_ids = nullptr;   // [stop_count]
  std::uint32_t stop_count = 0;
  std::int32_t* next_tokens = nullptr;  // [sequences]
  std::int32_t* lengths = nullptr;      // [sequences] positions filled; + 1
  std::int32_t* generated = nullptr;    // [sequences] tokens chosen so far; + 1
  std::int32_t* chosen = nullptr;       // [rows], for the host
};

// Fills a decode pass's rows from the sequences' own state: token next_tokens[s] at lengths[s].
struct DecodeRowsArgs {
  const std::int32_t* active = nullptr;  // [count] sequences
  const std::int32_t* next_tokens = nullptr;
  const std::int32_t* lengths = nullptr;
  std::int32_t* tokens = nullptr;  // [count]
  std::int32_t* sequences = nullptr;
  std::int32_t* positions = nullptr;
  std::uint32_t count = 0;
};

}  // namespace sluice
