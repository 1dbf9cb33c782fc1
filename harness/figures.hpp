// The figures of a cell, from the times and counts of its repeats.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "core/engine/counters.hpp"

namespace sluice {

// What one run over all prompts took. Times in ns.
struct RepeatFigures {
  std::uint64_t requests = 0, batches = 0, prompt_tokens = 0;
  std::uint64_t tokens = 0;       // generated, of all requests
  std::uint64_t prefill_ns = 0;   // passes over prompts
  std::uint64_t decode_ns = 0;    // from the first tokens to the last, over batches
  std::uint64_t ttft_ns = 0;      // over requests, with tokenising and sampling
  std::uint64_t sequence_ns = 0;  // from each request's first token to its last, over requests
  std::uint64_t prefill_stall_ns = 0, decode_stall_ns = 0;
  Counters prefill, decode;
  std::uint64_t decode_passes = 0;
  std::uint64_t decode_rows = 0;  // tokens computed by decode passes, those after a stop included
};

// Per repeat, then the median over repeats, with the smallest and the largest under `spread`:
//   prefill_ms                       prefill time of a batch, the mean over batches
//   ttft_ms                          the mean over requests
//   prefill_tokens_per_second        prompt tokens over prefill time
//   decode_tokens_per_second         sum of (tokens - 1) over sum of (total - TTFT), over sequences
//   decode_throughput_tokens_per_second  sum of (tokens - 1) over decode time; the same at batch 1
//   h2d_bytes_per_token              bytes that decode passes moved over the tokens they computed
//   h2d_gbps                         all bytes moved over prefill and decode time, 1e9 bytes/s
//   link_percent                     h2d_gbps of `link_gbps`
//   stall_ms_per_token               compute's waits for weights while decoding, over sum of
//                                    (tokens - 1); prefill_stall_ms: the rest, a batch's mean
//   transfer_to_compute              while decoding: bytes moved at `link_gbps`, over the time that
//                                    compute did not wait for weights
//   hits, misses, wasted, refused, loads, h2d_bytes   of one run
nlohmann::json make_figures(std::span<const RepeatFigures> repeats, double link_gbps);

}  // namespace sluice
