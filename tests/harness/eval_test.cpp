// `sluice eval` against logits that `sluice generate` prints, one prompt for each position.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Finished;
using test::run_sluice;
using test::ScratchDir;
using Ids = std::vector<std::int32_t>;
using Options = std::vector<std::string>;

const std::string kCheckpoints = std::string(SLUICE_TEST_DATA) + "/hf/";
const std::string kLlama = kCheckpoints + "llama-tiny";
const std::string kText = "The men and three of them had one owl.";
const Options kInt4{"--policy", "resident", "--param", "wire=int4", "--param", "resident=bf16"};

Json eval(Options options, const std::string& model = kLlama) {
  options.insert(options.begin(), {"eval", "--model", model, "--device", "cpu", "--json"});
  const Finished done = run_sluice(options);
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  return Json::parse(done.out);
}

Ids ids_of(const std::string& text) {
  const Finished done =
      run_sluice({"tokenize", "--tokenizer", kLlama, "--no-special"}, Json::array({text}).dump());
  REQUIRE(done.exit_code == 0);
  return Json::parse(done.out)[0].get<Ids>();
}

std::vector<long double> log_probabilities(const Ids& prompt, const Options& policy) {
  std::string ids;
  for (const std::int32_t id : prompt) ids += (ids.empty() ? "" : ",") + std::to_string(id);
  Options options{"generate", "--model",          kLlama, "--device", "cpu",      "--prompt-ids",
                  ids,        "--max-new-tokens", "1",    "--json",   "--greedy", "--first-logits"};
  options.insert(options.end(), policy.begin(), policy.end());
  const Finished done = run_sluice(options);
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  const Json logits = Json::parse(done.out)["first_logits"];
  long double sum = 0;
  for (const Json& logit : logits) sum += std::exp(logit.get<long double>());
  std::vector<long double> out;
  for (const Json& logit : logits) out.push_back(logit.get<long double>() - std::log(sum));
  return out;
}

struct Expected {
  std::size_t tokens = 0;
  long double surprise = 0, reference_surprise = 0, kl = 0, largest_kl = 0;
  std::size_t agreed = 0;

  double perplexity() const {
    return static_cast<double>(std::exp(surprise / static_cast<long double>(tokens)));
  }
};

// Of one window, the first `given` tokens of which are not predicted.
void add_window(Expected& to, const Ids& window, std::size_t given, const Options& policy,
                bool reference) {
  for (std::size_t at = given; at < window.size(); ++at) {
    const Ids before(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(at));
    const auto id = static_cast<std::size_t>(window[at]);
    const auto q = log_probabilities(before, policy);
    to.surprise -= q[id];
    ++to.tokens;
    if (!reference) continue;
    const auto p = log_probabilities(before, {"--policy", "resident"});
    to.reference_surprise -= p[id];
    long double kl = 0;
    for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
    to.kl += kl;
    to.largest_kl = std::max(to.largest_kl, kl);
    to.agreed += std::max_element(p.begin(), p.end()) - p.begin() ==
                 std::max_element(q.begin(), q.end()) - q.begin();
  }
}

}  // namespace

TEST_CASE("eval's perplexity is that of the logits which generate prints") {
  const ScratchDir dir;
  const std::string file = dir.write("text", kText);
  const Ids ids = ids_of(kText);
  REQUIRE(ids.size() > 9);
  Expected whole;
  add_window(whole, ids, 1, {"--policy", "resident"}, false);
  const Json all = eval({"--text", file, "--policy", "resident"});
  CHECK(all["tokens"] == ids.size() - 1);
  CHECK(all["windows"] == 1);
  CHECK(all["perplexity"].get<double>() == Approx(whole.perplexity()).epsilon(1e-9));
  CHECK_FALSE(all.contains("reference"));

  // Windows of 4 over the first 9 tokens: 4, 4, and one that predicts nothing.
  Expected cut;
  add_window(cut, {ids.begin(), ids.begin() + 4}, 1, {"--policy", "resident"}, false);
  add_window(cut, {ids.begin() + 4, ids.begin() + 8}, 1, {"--policy", "resident"}, false);
  const Json parts = eval({"--text", file, "--policy", "ring_prefetch", "--gpu-layer-budget", "1",
                           "--context", "4", "--max-tokens", "9"});
  CHECK(parts["tokens"] == 6);
  CHECK(parts["windows"] == 2);
  CHECK(parts["context"] == 4);
  CHECK(parts["perplexity"].get<double>() == Approx(cut.perplexity()).epsilon(1e-9));
}

TEST_CASE("eval takes a whole number of tokens, and at least one") {
  const ScratchDir dir;
  const std::string file = dir.write("text", kText);
  for (const char* given : {"-1", "0", "1.5", "1e3", "18446744073709551616", "some"}) {
    const Finished done = run_sluice(
        {"eval", "--model", kLlama, "--text", file, "--device", "cpu", "--max-tokens", given});
    CHECK(done.exit_code == 2);
    CHECK_THAT(done.err, Contains(given));
  }
}

TEST_CASE("eval compares a policy's weights with a reference's") {
  const ScratchDir dir;
  const std::string file = dir.write("text", kText);
  const Ids ids = ids_of(kText);
  Expected expected;
  add_window(expected, ids, 1, kInt4, true);
  Options options = kInt4;
  options.insert(options.end(), {"--text", file, "--reference", "resident"});
  const Json found = eval(options);
  const Json& reference = found["reference"];
  const auto tokens = static_cast<long double>(expected.tokens);
  const auto close_to = [](long double value) {
    return Approx(static_cast<double>(value)).epsilon(1e-9);
  };
  CHECK(found["perplexity"].get<double>() == close_to(expected.perplexity()));
  CHECK(reference["perplexity"].get<double>() ==
        close_to(std::exp(expected.reference_surprise / tokens)));
  CHECK(reference["mean_kl"].get<double>() == close_to(expected.kl / tokens));
  CHECK(reference["max_kl"].get<double>() == close_to(expected.largest_kl));
  CHECK(reference["top1_agreement"].get<double>() ==
        close_to(static_cast<long double>(expected.agreed) / tokens));
  CHECK(expected.kl > 0);
  CHECK(found["weights"] != reference["weights"]);

  // The other way round, through parameters of the reference.
  const Json back = eval({"--text", file, "--policy", "resident", "--reference", "resident",
                          "--reference-param", "wire=int4", "--reference-param", "resident=bf16"});
  CHECK(back["perplexity"] == reference["perplexity"]);
  CHECK(back["reference"]["perplexity"] == found["perplexity"]);
  CHECK(back["reference"]["mean_kl"] != reference["mean_kl"]);
}

TEST_CASE("windows come in turn: what is kept of the reference is that of the same window") {
  const ScratchDir dir;
  std::string text;
  for (int i = 0; i < 40; ++i) text += kText + "\n";
  const std::string file = dir.write("text", text);
  const Json found = eval({"--text", file, "--context", "100", "--policy", "ring_prefetch",
                           "--gpu-layer-budget", "1", "--reference", "resident"});
  CHECK(found["windows"].get<int>() > 4);
  CHECK(found["reference"]["max_kl"] == 0);
  CHECK(found["reference"]["top1_agreement"] == 1);
  CHECK(found["reference"]["perplexity"] == found["perplexity"]);
}

TEST_CASE("each window begins with what the tokenizer puts before a text") {
  const ScratchDir dir;
  fs::copy(kLlama, dir.path() / "model");
  Json tokenizer = Json::parse(test::bytes_of(dir.path() / "model/tokenizer.json"));
  const Json begin{{"SpecialToken", {{"id", "<|im_start|>"}, {"type_id", 0}}}};
  const Json text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  tokenizer["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({begin, text})},
      {"pair", Json::array({begin, text})},
      {"special_tokens",
       {{"<|im_start|>", {{"id", "<|im_start|>"}, {"ids", {1}}, {"tokens", {"<|im_start|>"}}}}}}};
  dir.write("model/tokenizer.json", tokenizer.dump());

  const Ids ids = ids_of(kText);
  Expected expected;
  for (std::size_t at = 0; at < ids.size(); at += 5) {
    Ids window{1};
    for (std::size_t i = at; i < std::min(at + 5, ids.size()); ++i) window.push_back(ids[i]);
    add_window(expected, window, 1, {"--policy", "resident"}, false);
  }
  const Json found =
      eval({"--text", dir.write("text", kText), "--context", "6", "--policy", "resident"},
           dir.path() / "model");
  CHECK(found["tokens"] == ids.size());
  CHECK(found["perplexity"].get<double>() == Approx(expected.perplexity()).epsilon(1e-9));
}

TEST_CASE("eval's table shows the same figures") {
  const ScratchDir dir;
  const std::string file = dir.write("text", kText);
  Options options{"eval",   "--model", kLlama,        "--device", "cpu",
                  "--text", file,      "--reference", "resident"};
  options.insert(options.end(), kInt4.begin(), kInt4.end());
  const Finished done = run_sluice(options);
  REQUIRE(done.exit_code == 0);
  CHECK_THAT(done.out, Contains("perplexity") && Contains("of the reference") &&
                           Contains("mean KL") && Contains("largest KL") &&
                           Contains("top-1 agreement"));
}

TEST_CASE("what eval cannot do ends with exit code 2 and says why") {
  const ScratchDir dir;
  const std::string text = dir.write("text", kText), empty = dir.write("empty", ""),
                    one = dir.write("one", "a");
  struct Case {
    std::string model;
    Options more;
    std::string message;
  };
  const std::vector<Case> cases{
      {kLlama, {"--text", empty}, "the file is empty"},
      {kLlama, {"--text", one}, "1 token of it; at least 2"},
      {kLlama, {"--text", dir.path() / "none"}, "none"},
      {kLlama, {"--text", text, "--context", "1"}, "a context of 1 predicts nothing"},
      {kLlama, {"--text", text, "--context", "5000"}, "beyond the 4096 positions"},
      {kLlama, {"--text", text, "--device", "sim", "--machine", "rtx3070"}, "--device cpu or cuda"},
      {kLlama, {"--text", text, "--reference", "residnt"}, "residnt"},
      {kLlama, {"--text", text, "--reference-param", "wire=int8"}, "no --reference"},
      {kLlama,
       {"--text", text, "--reference", "resident", "--reference-param", "wire=int9"},
       "--reference-param wire=int9"},
      {kLlama, {"--text", text, "--set", "sweep.dtype=[f32, bf16]"}, "nothing to sweep"},
      {kLlama, {"--text", text, "--memory-limit", "1kB"}, "memory limit"},
      {kCheckpoints + "qwen3-tiny", {"--text", text}, "no tokenizer"},
  };
  for (const Case& one_case : cases) {
    Options options{"eval", "--model", one_case.model};
    options.insert(options.end(), one_case.more.begin(), one_case.more.end());
    const Finished done = run_sluice(options);
    INFO(one_case.message << "\n" << done.err);
    CHECK(done.exit_code == 2);
    CHECK(done.out.empty());
    CHECK_THAT(done.err, StartsWith("sluice: ") && Contains(one_case.message));
  }
}

}  // namespace sluice
