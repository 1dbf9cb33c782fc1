#include "tests/models/rig.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/places.hpp"

namespace sluice::test {
namespace fs = std::filesystem;

float Golden::largest_logit() const {
  float largest = 0;
  for (const float logit : first_logits_fp32) largest = std::max(largest, std::abs(logit));
  return largest;
}

std::vector<Golden> golden_of(const fs::path& checkpoint) {
  std::ifstream file(checkpoint / "golden.json");
  REQUIRE(file);
  std::vector<Golden> out;
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const auto& one : golden.at("cases")) {
    out.push_back({one.at("prompt").get<Ids>(), one.at("greedy_fp32").get<Ids>(),
                   one.at("greedy_native").get<Ids>(),
                   one.at("margin_native").get<std::vector<float>>(),
                   one.at("first_logits_fp32").get<std::vector<float>>(),
                   one.value("routing_native", std::vector<Ids>{})});
  }
  if (std::ifstream beside(checkpoint / "routing_native.json"); beside) {
    const nlohmann::json routing = nlohmann::json::parse(beside);
    REQUIRE(routing.size() == out.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i].routing_native = routing[i].get<std::vector<Ids>>();
  }
  return out;
}

fs::path checkpoint(const std::string& name) {
  for (const char* set : {"hf", "hf_extra"}) {
    const fs::path path = data_directory() / set / name;
    if (fs::exists(path)) return path;
  }
  FAIL("there is no checkpoint " << name);
  return {};
}

std::vector<fs::path> all_checkpoints() {
  std::vector<fs::path> out;
  for (const char* set : {"hf", "hf_extra"})
    for (const auto& entry : fs::directory_iterator(data_directory() / set))
      if (entry.is_directory()) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

std::vector<fs::path> checkpoints_with(bool experts) {
  std::vector<fs::path> out = all_checkpoints();
  std::erase_if(out, [&](const fs::path& path) {
    return (load_model_config(path).experts.count > 0) != experts;
  });
  return out;
}

}  // namespace

std::vector<fs::path> dense_checkpoints() {
  std::vector<fs::path> out = checkpoints_with(false);
  REQUIRE(out.size() >= 11);
  return out;
}

std::vector<fs::path> expert_checkpoints() {
  std::vector<fs::path> out = checkpoints_with(true);
  REQUIRE(out.size() >= 2);
  return out;
}

namespace {

WeightStore::Options options_for(const ModelSource& source, DType dtype,
                                 std::optional<std::uint64_t> pinned_limit, Stored stored) {
  WeightStore::Options options;
  options.dtype = dtype;
  options.pinned_limit = pinned_limit;
  if (stored == Stored::native) return options;
  const ModelLayout layout(source.plan, *source.tensors, dtype);
  for (const UnitInfo& unit : layout.units()) {
    EncodingSet all = Encoding::native;
    for (const Encoding encoding : {Encoding::int8, Encoding::int4})
      if (unit.size(encoding) != 0) all.add(encoding);
    options.encodings.push_back(all);
  }
  return options;
}

}  // namespace

ModelRig::ModelRig(const fs::path& checkpoint, std::optional<DType> dtype,
                   std::unique_ptr<IDevice> device, std::optional<std::uint64_t> pinned_limit,
                   Stored stored)
    : ModelRig(open_model(CheckpointLocation{checkpoint}, {}), dtype, std::move(device),
               pinned_limit, stored) {}

ModelRig::ModelRig(const SyntheticLocation& shape, std::unique_ptr<IDevice> device)
    : ModelRig(open_model(shape, fs::path(SLUICE_TEST_DATA) / "../../configs/models"), {},
               std::move(device), {}, Stored::native) {}

ModelRig::ModelRig(ModelSource source, std::optional<DType> dtype, std::unique_ptr<IDevice> device,
                   std::optional<std::uint64_t> pinned_limit, Stored stored)
    : source_(std::move(source)),
      dtype_(dtype.value_or(source_.config.dtype)),
      device_(std::move(device)),
      audited_(*device_),
      compute_(this->device().make_stream(Resource::compute, "compute")),
      weights_(std::make_unique<WeightStore>(this->device(), source_.plan, *source_.tensors,
                                             options_for(source_, dtype_, pinned_limit, stored))) {}

std::unique_ptr<Decoder> ModelRig::decoder(const DecoderLimits& limits,
                                           const RoutingHooks& routing) {
  return std::make_unique<Decoder>(device(), compute_, config(), weights(), dtype_, limits,
                                   routing);
}

GenerationRequest greedy(Ids prompt, std::uint32_t count) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = count;
  request.ignore_eos = true;
  return request;
}

Ids made_up_prompt(std::size_t length, std::uint64_t seed, std::int32_t vocab) {
  Ids out(length);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + length + 1;
  for (std::int32_t& id : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(vocab));
  }
  return out;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

bool same_bits(const Trace& a, const Trace& b) {
  return a.tokens == b.tokens &&
         std::equal(a.logits.begin(), a.logits.end(), b.logits.begin(), b.logits.end(),
                    [](const auto& x, const auto& y) { return same_bits(x, y); });
}

std::vector<Trace> trace(Decoder& decoder, ILayerProvider& provider,
                         const std::vector<Ids>& prompts, std::size_t count) {
  std::vector<Trace> out(prompts.size());
  std::vector<std::uint32_t> sequences;
  std::vector<std::span<const std::int32_t>> spans;
  for (std::uint32_t s = 0; s < prompts.size(); ++s) {
    decoder.start(s, {});
    sequences.push_back(s);
    spans.emplace_back(prompts[s]);
  }
  decoder.prefill(provider, sequences, spans, count == 1);
  for (std::size_t token = 0;; ++token) {
    const std::span<const std::int32_t> chosen = decoder.chosen(0);
    for (std::uint32_t s = 0; s < prompts.size(); ++s) {
      out[s].tokens.push_back(chosen[s]);
      out[s].logits.push_back(decoder.logits(s));
    }
    if (token + 1 == count) break;
    decoder.decode(provider, sequences, token + 2 == count);
  }
  for (const std::uint32_t s : sequences) decoder.finish(s);
  return out;
}

std::vector<Trace> trace_on(ModelRig& rig, const std::vector<Ids>& prompts, std::size_t count,
                            DecoderLimits limits) {
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder(limits);
  return trace(*decoder, provider, prompts, count);
}

Trace trace_alone(ModelRig& rig, const Ids& prompt, std::size_t count) {
  return trace_on(rig, {prompt}, count, {.context = kTraceContext})[0];
}

}  // namespace sluice::test
