// Checkpoints of the test data on a device, and what comes out of them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device/cpu_device.hpp"
#include "core/engine/layer_provider.hpp"
#include "core/weights/weight_store.hpp"
#include "models/generator.hpp"
#include "models/model_source.hpp"
#include "tests/audited.hpp"
#include "tests/test_device.hpp"

namespace sluice::test {

using Ids = std::vector<std::int32_t>;

// One case of a golden.json.
struct Golden {
  Ids prompt, greedy_fp32, greedy_native;
  std::vector<float> margin_native, first_logits_fp32;
  // Of a model with experts: by layer of experts, those of each position one after the other.
  std::vector<Ids> routing_native;

  float largest_logit() const;  // by magnitude
};
std::vector<Golden> golden_of(const std::filesystem::path& checkpoint);

// tests/data/hf/NAME or tests/data/hf_extra/NAME.
std::filesystem::path checkpoint(const std::string& name);
// All of both, sorted by name; those without experts, those with.
std::vector<std::filesystem::path> all_checkpoints();
std::vector<std::filesystem::path> dense_checkpoints();
std::vector<std::filesystem::path> expert_checkpoints();

// What a rig stores: each unit natively, or in all encodings that it can have.
enum class Stored { native, all };

// Weights of a checkpoint, packed for `dtype` (none: its own), beside a device under the
// audit. `pinned_limit` is the store's.
class ModelRig {
 public:
  explicit ModelRig(const std::filesystem::path& checkpoint, std::optional<DType> dtype = {},
                    std::unique_ptr<IDevice> device = make_test_device(),
                    std::optional<std::uint64_t> pinned_limit = {}, Stored stored = Stored::native);
  explicit ModelRig(ModelSource source, std::optional<DType> dtype = {},
                    std::unique_ptr<IDevice> device = make_test_device(),
                    std::optional<std::uint64_t> pinned_limit = {}, Stored stored = Stored::native);
  // Of the shape configs/models/NAME.json, its own type.
  ModelRig(const SyntheticLocation& shape, std::unique_ptr<IDevice> device);

  IDevice& device() { return audited_.device(); }
  StreamId compute() const { return compute_; }
  const ModelConfig& config() const { return source_.config; }
  const WeightStore& weights() const { return *weights_; }
  DType dtype() const { return dtype_; }

  std::unique_ptr<Decoder> decoder(const DecoderLimits& limits, const RoutingHooks& routing = {});

 private:
  ModelSource source_;
  DType dtype_;
  std::unique_ptr<IDevice> device_;
  Audited audited_;
  StreamId compute_;
  std::unique_ptr<WeightStore> weights_;
};

// A request for `count` greedy tokens, whatever they are.
GenerationRequest greedy(Ids prompt, std::uint32_t count);

// `length` ids that repeat nowhere near, a pure function of length, seed and vocab.
Ids made_up_prompt(std::size_t length, std::uint64_t seed, std::int32_t vocab);

// Bit by bit: a NaN equals itself, and 0 is not -0.
bool same_bits(std::span<const float> a, std::span<const float> b);

// The tokens of a sequence and the logits that each was chosen from.
struct Trace {
  Ids tokens;
  std::vector<std::vector<float>> logits;
};
bool same_bits(const Trace& a, const Trace& b);

// Prefills `prompts` at once on sequences 0, 1, ... and decodes until each has `count` tokens, the
// host in step with the device.
std::vector<Trace> trace(Decoder& decoder, ILayerProvider& provider,
                         const std::vector<Ids>& prompts, std::size_t count);

// Of everything resident.
std::vector<Trace> trace_on(ModelRig& rig, const std::vector<Ids>& prompts, std::size_t count,
                            DecoderLimits limits);

// Of one prompt, with room for as many positions.
inline constexpr std::uint32_t kTraceContext = 320;
Trace trace_alone(ModelRig& rig, const Ids& prompt, std::size_t count);

}  // namespace sluice::test
