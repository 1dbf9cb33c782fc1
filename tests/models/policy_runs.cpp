#include "tests/models/policy_runs.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/engine/engine.hpp"
#include "core/engine/mapped_provider.hpp"
#include "core/engine/resident_provider.hpp"
#include "core/plugin/loader.hpp"
#include "tests/catch.hpp"
#include "tests/places.hpp"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kPolicyTokens = 8;
const std::vector<std::size_t> kPromptLengths{3, 65, 17};

constexpr PolicyCase kPolicies[] = {
    {"naive_sync", 0}, {"prefetch", 0}, {"ring_prefetch", 1}, {"ring_prefetch", 2}};
constexpr PolicyCase kQuantised[] = {
    {"int8_prefetch", 1, Encoding::int8, "int8", "bf16"},
    {"int8_prefetch", 2, Encoding::int8, "bf16", "int8"},
    {"int4_prefetch", 1, Encoding::int4, "int4", "int4"},
    {"int4_prefetch", 1, Encoding::int4, "bf16", "bf16"},
};

constexpr PolicyCase cache(const char* name, const char* scope, const char* prefill,
                           Encoding encoding = Encoding::native) {
  return {name, 0, encoding, nullptr, nullptr, scope, prefill};
}
constexpr PolicyCase kExperts[] = {
    cache("expert_lru", "layer", "bypass"),     cache("expert_lru", "global", "share"),
    cache("expert_lfu", "layer", "share"),      cache("expert_lfu", "global", "bypass"),
    cache("expert_s3fifo", "layer", "bypass"),  cache("expert_s3fifo", "global", "share"),
    cache("expert_prefetch", "layer", "bypass")};
constexpr PolicyCase kQuantisedExperts[] = {cache("expert_lru", "layer", "bypass", Encoding::int8),
                                            cache("expert_lfu", "layer", "share", Encoding::int4)};

}  // namespace

std::span<const PolicyCase> expert_cases() { return kExperts; }
std::span<const PolicyCase> quantised_expert_cases() { return kQuantisedExperts; }
std::span<const PolicyCase> policy_cases() { return kPolicies; }

PolicyPtr policy_of(const PolicyCase& one) {
  ParamValues values;
  if (one.depth) values["depth"] = std::to_string(one.depth);
  if (one.resident) values["resident"] = one.resident;
  if (one.head) values["head"] = one.head;
  if (one.scope) values["scope"] = one.scope;
  if (one.prefill) values["prefill"] = one.prefill;
  if (one.scope && one.encoding != Encoding::native) values["encoding"] = name_of(one.encoding);
  return make_policy(load_plugin(policy_directory() / (std::string(one.name) + ".so")), values);
}

std::span<const PolicyCase> quantised_cases() { return kQuantised; }

std::vector<GenerationRequest> requests_for(std::int32_t vocab) {
  std::vector<GenerationRequest> out;
  for (const std::size_t length : kPromptLengths) {
    out.push_back(greedy(made_up_prompt(length, 11, vocab), kPolicyTokens));
    out.back().want_first_logits = true;
  }
  return out;
}

bool Output::operator==(const Output& other) const {
  if (results.size() != other.results.size()) return false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].tokens != other.results[i].tokens ||
        !same_bits(results[i].first_logits, other.results[i].first_logits))
      return false;
  }
  return std::equal(last_logits.begin(), last_logits.end(), other.last_logits.begin(),
                    other.last_logits.end(),
                    [](const auto& a, const auto& b) { return same_bits(a, b); });
}

Output generate(ModelRig& rig, ILayerProvider& provider,
                const std::vector<GenerationRequest>& requests, std::uint32_t batch,
                const RoutingHooks& routing) {
  const auto decoder = rig.decoder({.context = 80, .sequences = batch}, routing);
  Generator generator(rig.device(), *decoder, provider, {});
  Output out{generator.run(requests, batch), {}};
  const std::size_t in_last = (requests.size() - 1) % batch + 1;
  for (std::uint32_t s = 0; s < in_last; ++s) out.last_logits.push_back(decoder->logits(s));
  return out;
}

namespace {

// [rows, k] of a unit; of what is no matrix: k values.
struct Part {
  std::uint64_t rows = 0, k = 0;
};

// Of one unit: its tensors in slab order, those that are read as one counted together. Each starts
// at a multiple of 16 bytes; a matrix in int8 is k bytes a row, padded to 16, and 4 of scale behind
// all rows; in int4 half a byte a weight and 4 bytes a group of 128.
std::uint64_t slab_bytes(const std::vector<Part>& parts, std::uint64_t element, Encoding encoding) {
  std::uint64_t bytes = 0;
  const auto round_up = [](std::uint64_t n) { return (n + 15) / 16 * 16; };
  for (const auto& [rows, k] : parts) {
    bytes = round_up(bytes);
    if (encoding == Encoding::native || rows == 0) {
      bytes += std::max<std::uint64_t>(rows, 1) * k * element;
      continue;
    }
    const bool is_int8 = encoding == Encoding::int8;
    bytes += rows * round_up(is_int8 ? k : (k + 1) / 2);
    bytes = round_up(bytes) + rows * 4 * (is_int8 ? 1 : (k + 127) / 128);
  }
  return bytes;
}

// Bytes of one layer's attention and MLP, from config.json's figures alone.
std::uint64_t layer_bytes(const fs::path& path, std::uint64_t element,
                          Encoding encoding = Encoding::native) {
  std::ifstream file(path / "config.json");
  const nlohmann::json c = nlohmann::json::parse(file);
  const std::uint64_t hidden = c.at("hidden_size"), inter = c.at("intermediate_size");
  const std::uint64_t heads = c.at("num_attention_heads"), kv_heads = c.at("num_key_value_heads");
  const std::uint64_t head_dim = c.value("head_dim", hidden / heads);
  const std::string type = c.at("model_type");
  const std::uint64_t q = heads * head_dim, qkv = q + 2 * kv_heads * head_dim;
  const bool bias = c.value("attention_bias", false), mlp_bias = c.value("mlp_bias", false);
  std::vector<Part> attention{{qkv, hidden}, {hidden, q}};
  if (bias || type == "qwen2") attention.push_back({0, qkv});
  if (bias) attention.push_back({0, hidden});
  attention.push_back({0, hidden});
  if (type == "qwen3") attention.insert(attention.end(), {{0, head_dim}, {0, head_dim}});
  std::vector<Part> mlp{{2 * inter, hidden}, {hidden, inter}};
  if (mlp_bias) mlp.insert(mlp.end(), {{0, 2 * inter}, {0, hidden}});
  mlp.push_back({0, hidden});
  return slab_bytes(attention, element, encoding) + slab_bytes(mlp, element, encoding);
}

// Layers' worth of bytes that cross the link for `passes` walks over `layers` at a budget.
std::uint64_t layers_moved(const PolicyCase& policy, std::uint64_t layers, std::uint64_t budget,
                           std::uint64_t passes) {
  if (policy.depth == 0) return budget >= layers ? layers : passes * layers;  // nothing is kept
  if (budget >= layers) return 0;                                             // all are
  const std::uint64_t kept = budget - std::min<std::uint64_t>(policy.depth, budget);
  return passes * (layers - kept);
}

Output generate(ModelRig& rig, ILayerProvider& provider, std::uint32_t batch) {
  return test::generate(rig, provider, requests_for(rig.config().vocab), batch);
}

void compare_mapped(ModelRig& rig, std::uint64_t layer_bytes, std::uint32_t batch,
                    std::uint64_t passes, const Output& expected) {
  const ModelView view = rig.weights().view();
  const std::uint64_t head =
      std::ranges::find(view.units, UnitKind::head, &UnitInfo::kind)->size(Encoding::native);
  const auto layers = static_cast<std::uint64_t>(view.layers);
  MappedProvider mapped(rig.weights());
  CAPTURE(batch);
  CHECK(generate(rig, mapped, batch) == expected);
  CHECK(mapped.counters().h2d_bytes == passes * (layers * layer_bytes + head));
  CHECK(mapped.counters().misses == passes * (2 * layers + 1));
  CHECK(mapped.counters().hits == 0);
}

}  // namespace

void compare_policies(ModelRig& rig, const fs::path& path, std::span<const bool> poisons,
                      PolicyRuns& runs) {
  const ModelView view = rig.weights().view();
  const auto layers = static_cast<std::uint32_t>(rig.config().layers);
  std::vector<PolicyCase> cases(std::begin(kPolicies), std::end(kPolicies));
  if (rig.weights().stores(view.order.front(), Encoding::int8))
    cases.insert(cases.end(), std::begin(kQuantised), std::end(kQuantised));
  for (const std::uint32_t batch : {1u, 3u}) {
    const std::uint64_t passes = kPromptLengths.size() / batch * kPolicyTokens;
    Output expected;
    const auto run_resident = [&](const TransferOf& transfer) {
      ResidentProvider resident(rig.device(), rig.compute(), rig.weights(), transfer);
      expected = generate(rig, resident, batch);
    };
    run_resident([](const UnitInfo&) { return Transfer{}; });
    if (rig.weights().unpinned_bytes() == 0)
      compare_mapped(rig, layer_bytes(path, size_of(rig.dtype())), batch, passes, expected);
    for (const PolicyCase& one : cases) {
      const std::uint64_t a_layer = layer_bytes(path, size_of(rig.dtype()), one.encoding);
      if (one.resident)
        run_resident([&](const UnitInfo& unit) { return policy_of(one)->transfer(view, unit); });
      for (std::uint32_t budget = 1; budget <= layers + 1; ++budget) {
        for (const bool poison : poisons) {
          EngineOptions options;
          options.poison = poison;
          options.chunk_bytes = 4096;
          options.staging_half_bytes = 10000;
          const PolicyPtr policy = policy_of(one);
          Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, one.name,
                        LayerBudget{budget}, options);
          CAPTURE(path.filename(), one.name, one.depth, budget, batch, poison);
          CHECK(generate(rig, engine, batch) == expected);
          const Counters& book = engine.counters();
          CHECK(book.h2d_bytes == layers_moved(one, layers, budget, passes) * a_layer);
          CHECK(book.hits + book.misses == passes * (2 * layers + 1));  // and the head
          CHECK(book.wasted == 0);
          CHECK(book.refused == 0);
          ++runs.count;
          runs.moved_bytes += book.h2d_bytes;
        }
      }
    }
  }
}

}  // namespace sluice::test
