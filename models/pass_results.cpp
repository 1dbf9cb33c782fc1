#include "models/pass_results.hpp"

#include <algorithm>
#include <cstring>

#include "core/float16.hpp"

namespace sluice {
namespace {

float widen(const std::byte* at, DType type) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace

PassResults::PassResults(Ops& ops, const WorkspaceLayout& device, std::uint32_t kept,
                         std::uint32_t sequences, std::uint32_t vocab, DType type)
    : ops_(ops),
      device_(device),
      width_(sequences),
      vocab_(vocab),
      type_(type),
      pinned_tokens_(ops.device(), Buffer::Where::pinned,
                     std::uint64_t{kept} * sequences * sizeof(std::int32_t), "the chosen tokens"),
      pinned_logits_(ops.device(), Buffer::Where::pinned, vocab * size_of(type), "a row of logits"),
      ring_(kept) {}

void PassResults::take(std::span<const std::uint32_t> sequences) {
  const std::size_t slot = taken_++ % ring_.size();
  Pass& pass = ring_[slot];
  pass.sequences.assign(sequences.begin(), sequences.end());
  pass.tokens.assign(sequences.size(), 0);
  ops_.download(pinned_tokens_.as<std::int32_t>() + slot * width_, device_.chosen,
                sequences.size() * sizeof(std::int32_t));
  pass.arrived = ops_.device().record(ops_.stream());
}

std::span<const std::int32_t> PassResults::chosen(std::uint32_t back) {
  const std::uint64_t kept = std::min<std::uint64_t>(taken_, ring_.size());
  if (back >= kept)
    throw Error("the tokens of the pass {} before the newest are asked for, but only {} are kept",
                back, kept);
  const std::size_t slot = (taken_ - 1 - back) % ring_.size();
  Pass& pass = ring_[slot];
  IDevice& device = ops_.device();
  device.sync(pass.arrived);
  const std::int32_t* const from = pinned_tokens_.as<std::int32_t>() + slot * width_;
  const Range touched = range_of(from, pass.tokens.size() * sizeof(std::int32_t));
  device.host(
      {.name = "read_tokens", .on = Resource::host, .bytes = touched.size, .reads = {&touched, 1}});
  if (device.info().executes) std::copy_n(from, pass.tokens.size(), pass.tokens.begin());
  const auto not_finite = std::find(pass.tokens.begin(), pass.tokens.end(), kNotFinite);
  if (not_finite != pass.tokens.end())
    throw Error(
        "the logits of sequence {} are not finite: the model's {} activations overflowed, or its "
        "weights are damaged",
        pass.sequences[static_cast<std::size_t>(not_finite - pass.tokens.begin())], name_of(type_));
  return pass.tokens;
}

std::vector<float> PassResults::logits(std::uint32_t sequence) {
  if (!newest_has(sequence))
    throw Error("logits of sequence {} are asked for, which the newest pass did not have",
                sequence);
  const auto& sequences = ring_[(taken_ - 1) % ring_.size()].sequences;
  const auto row = std::find(sequences.begin(), sequences.end(), sequence) - sequences.begin();
  ops_.download(pinned_logits_.data(),
                device_.logits + static_cast<std::uint64_t>(row) * pinned_logits_.bytes(),
                pinned_logits_.bytes());
  IDevice& device = ops_.device();
  device.sync(device.record(ops_.stream()));
  const Range touched = pinned_logits_.range();
  device.host(
      {.name = "read_logits", .on = Resource::host, .bytes = touched.size, .reads = {&touched, 1}});
  std::vector<float> out(vocab_);
  if (!device.info().executes) return out;
  const std::byte* at = pinned_logits_.data();
  for (float& value : out) {
    value = widen(at, type_);
    at += size_of(type_);
  }
  return out;
}

bool PassResults::newest_has(std::uint32_t sequence) const {
  if (taken_ == 0) return false;
  const auto& sequences = ring_[(taken_ - 1) % ring_.size()].sequences;
  return std::find(sequences.begin(), sequences.end(), sequence) != sequences.end();
}

}  // namespace sluice
