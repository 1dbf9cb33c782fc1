// Files of routing: what is written is read back, a trace of others says the same, and what is broken
// is refused with its line.
#include <filesystem>
#include <fstream>
#include <random>

#include "models/route_trace.hpp"
#include "models/routing_file.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/places.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice::test {
namespace {

const std::string kHead =
    "# sluice routing 1: layers=2 experts=8 per_token=2 expert_bytes=64\n"
    "step,phase,layer,experts,weights\n";

std::string refusal(const std::string& text) {
  return input_error([&] { parse_routing(text, "x.csv"); });
}

}  // namespace

TEST_CASE("recorded routing is read back as it was") {
  const std::uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const ScratchDir dir;
  const std::filesystem::path path = dir.path() / "routing.csv";
  const RoutingShape shape{.layers = 3, .experts = 16, .per_token = 2, .expert_bytes = 99};
  Routing expected{.shape = shape, .passes = {}};
  {
    RoutingFile file(path, shape);
    for (const std::size_t tokens : {5u, 1u, 1u, 4u}) {
      RoutedPass pass{.phase = tokens == 5 ? Phase::prefill : Phase::decode, .layers = {}};
      for (const std::int32_t layer : {0, 2}) {
        RoutedLayer routed{layer, {}};
        std::vector<float> weights;
        const std::vector<std::uint32_t> sequences(tokens, 0);
        for (std::size_t token = 0; token < tokens; ++token) {
          const auto first = static_cast<std::int32_t>(random() % 15);
          routed.ids.insert(routed.ids.end(), {first, first + 1});
          weights.insert(weights.end(), {0.75f, 0.25f});
        }
        file.routed(
            {.step = random(),
             .phase = pass.phase,
             .layer = layer,
             .per_token = 2,
             .ids = routed.ids,
             .weights = random() % 2 ? std::span<const float>(weights) : std::span<const float>(),
             .sequences = sequences});
        pass.layers.push_back(std::move(routed));
      }
      expected.passes.push_back(std::move(pass));
    }
    CHECK_FALSE(std::filesystem::exists(path));
    file.finish();
  }
  const Routing read = read_routing(path);
  CHECK(read.shape == expected.shape);
  REQUIRE(read.passes.size() == expected.passes.size());
  for (std::size_t i = 0; i < read.passes.size(); ++i) {
    CHECK(read.passes[i].phase == expected.passes[i].phase);
    REQUIRE(read.passes[i].layers.size() == 2);
    for (std::size_t k = 0; k < 2; ++k) {
      CHECK(read.passes[i].layers[k].layer == expected.passes[i].layers[k].layer);
      CHECK(read.passes[i].layers[k].ids == expected.passes[i].layers[k].ids);
    }
  }
}

TEST_CASE("broken routing is refused with its line and the reason") {
  CHECK(parse_routing(kHead, "x.csv").passes.empty());
  CHECK(parse_routing(kHead + "0,decode,0,1 2,0.5 0.5\r\n0,decode,1,3 4,", "x.csv").passes.size() ==
        1);
  const auto line = [](const std::string& text) { return refusal(kHead + text); };
  CHECK_THAT(refusal(""), StartsWith("x.csv: line 1: ") && Contains("sluice routing 1"));
  CHECK_THAT(refusal("# sluice routing 1: layers=2 experts=8\n"),
             Contains("'per_token=' is missing"));
  CHECK_THAT(refusal("# sluice routing 1: layers=0 experts=8 per_token=2 expert_bytes=1\n"),
             Contains("layers is 0"));
  CHECK_THAT(refusal("# sluice routing 1: layers=2 experts=8 per_token=9 expert_bytes=1\n"),
             Contains("per_token '9'") && Contains("to 8"));
  CHECK_THAT(refusal("# sluice routing 1: layers=99999999999999999999 experts=8\n"),
             Contains("layers '9999"));
  CHECK_THAT(refusal(kHead.substr(0, kHead.find('\n') + 1) + "step,layer\n"),
             Contains("line 2: the columns"));
  CHECK_THAT(line("0,decode,0,1,\n"), Contains("line 3: 1 experts; a token has 2"));
  CHECK_THAT(line("0,decode,0,1 1,\n"), Contains("expert 1 is named twice"));
  CHECK_THAT(line("0,decode,0,1 8,\n"), Contains("expert '8' is no whole number from 0 to 7"));
  CHECK_THAT(line("0,decode,2,1 2,\n"), Contains("layer '2'"));
  CHECK_THAT(line("0,training,0,1 2,\n"), Contains("phase 'training'"));
  CHECK_THAT(line("-1,decode,0,1 2,\n"), Contains("step '-1'"));
  CHECK_THAT(line("0,decode,0,1 2,0.5\n"), Contains("1 weights for 2 experts"));
  CHECK_THAT(line("0,decode,0,1 2,0.5 nan\n"), Contains("weight 'nan'"));
  CHECK_THAT(line("0,decode,0,1 2,0.5 x\n"), Contains("weight 'x'"));
  CHECK_THAT(line("\n"), Contains("step ''"));
  CHECK_THAT(line("1,decode,0,1 2,\n0,decode,0,1 2,\n"),
             Contains("line 4: step 0 behind a later one"));
  CHECK_THAT(line("0,decode,1,1 2,\n0,decode,0,1 2,\n"), Contains("layer 0 behind a later one"));
  CHECK_THAT(line("0,decode,0,1 2,\n0,prefill,1,1 2,\n"), Contains("two phases"));
}

TEST_CASE("a trace of others says what its copy in this format says") {
  const std::filesystem::path data = data_directory() / "routing";
  const Routing trace = read_routing(data / "route_trace.csv");
  const Routing whole = read_routing(data / "qwen3-30b-a3b-top6.csv");
  CHECK(trace.shape == whole.shape);
  CHECK(whole.passes.size() == 1 + 128);
  REQUIRE(trace.passes.size() == 1 + 3);
  for (std::size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    const RoutedPass& same = whole.passes[i];
    CHECK(trace.passes[i].phase == same.phase);
    REQUIRE(trace.passes[i].layers.size() == 2);
    for (std::size_t k = 0; k < 2; ++k) {
      CHECK(same.layers[k].ids.size() == (i == 0 ? 28 : 1) * 6);
      CHECK(trace.passes[i].layers[k].ids == same.layers[k].ids);
    }
  }
}

TEST_CASE("a broken trace of others is refused with its line and the reason") {
  const std::string text = bytes_of(data_directory() / "routing" / "route_trace.csv");
  REQUIRE(is_route_trace(text));
  CHECK_THAT(refusal(text.substr(0, text.find("\nturn"))), Contains("the columns must be"));
  CHECK_THAT(refusal("# route_trace v1\n"), Contains("n_layer, n_expert"));
  CHECK_THAT(refusal(text + "0,1,30,1,0,5,0.5,0,0\n"),
             Contains("slots of a token count from 0 on"));
  CHECK_THAT(refusal(text + "0,1,31,0,0,5,0.5,0,0\n0,1,32,0,0,5,0.5,0,0\n"),
             Contains("has 1 experts, not 6"));
  CHECK_THAT(refusal(text + "0,1,31,0,0,5,0.5,0,0\n0,1,31,0,1,5,0.5,0,0\n"),
             Contains("named twice"));
  CHECK_THAT(refusal(text + "0,1,31,0,0,128,0.5,0,0\n"), Contains("'128'"));
  CHECK_THAT(refusal(text + "0,1,31,48,0,1,0.5,0,0\n"), Contains("'48'"));
  CHECK_THAT(refusal(text + "0,1,30,0,0,1,0.5,0,0\n"), Contains("layer 0 behind a later one"));
  CHECK_THAT(refusal(text + "0,1,31\n"), Contains("nine fields"));
}

}  // namespace sluice::test
