// Against values of the reference, made by scripts/make_fixtures.py.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "models/rope.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

RopeConfig config_of(const nlohmann::json& one) {
  const auto& p = one.at("parameters");
  const std::string type = p.at("rope_type");
  RopeConfig rope;
  rope.type = type == "default"  ? RopeType::standard
              : type == "linear" ? RopeType::linear
              : type == "yarn"   ? RopeType::yarn
                                 : RopeType::llama3;
  rope.theta = p.at("rope_theta");
  rope.factor = p.value("factor", 1.0);
  rope.original_positions = p.value("original_max_position_embeddings", 0.0);
  rope.low_freq_factor = p.value("low_freq_factor", 0.0);
  rope.high_freq_factor = p.value("high_freq_factor", 0.0);
  rope.beta_fast = p.value("beta_fast", 32.0);
  rope.beta_slow = p.value("beta_slow", 1.0);
  rope.truncate = p.value("truncate", true);
  rope.attention_factor = one.at("attention_factor");
  return rope;
}

TEST_CASE("frequencies and tables are the reference's", "[rope]") {
  std::ifstream file(std::string(SLUICE_TEST_DATA) + "/hf_extra/rope.json");
  REQUIRE(file);
  const nlohmann::json data = nlohmann::json::parse(file);
  REQUIRE(data.at("ropes").size() == 5);
  for (const auto& one : data.at("ropes")) {
    const std::string name = one.at("name");
    const RopeConfig rope = config_of(one);
    const std::uint32_t head_dim = one.at("head_dim");
    const auto positions = one.at("positions").get<std::vector<std::uint32_t>>();
    const std::uint32_t context = positions.back() + 1;

    // The reference's vectorised power is off by a unit in the last place now and then.
    const std::vector<float> frequencies = rope_frequencies(rope, head_dim);
    const auto expected = one.at("inv_freq").get<std::vector<float>>();
    REQUIRE(frequencies.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(name, i, frequencies[i], expected[i]);
      CHECK(std::abs(frequencies[i] - expected[i]) <= 2.5e-7f * expected[i]);
    }

    const std::size_t half = head_dim / 2;
    std::vector<float> cos(context * half), sin(cos.size());
    fill_rope_tables(rope, head_dim, context, cos, sin);
    for (std::size_t p = 0; p < positions.size(); ++p) {
      for (std::size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[p]) * expected[i];
        const float allowed = 3e-7f * (angle + 1);
        const std::size_t at = positions[p] * half + i;
        CAPTURE(name, positions[p], i);
        CHECK(std::abs(cos[at] - one.at("cos")[p][i].get<float>()) <= allowed);
        CHECK(std::abs(sin[at] - one.at("sin")[p][i].get<float>()) <= allowed);
      }
    }
  }
}

TEST_CASE("position 0 is not turned and the attention factor scales it", "[rope]") {
  const RopeConfig rope{.type = RopeType::standard, .theta = 10000, .attention_factor = 1.5};
  std::vector<float> cos(4), sin(4);
  fill_rope_tables(rope, 8, 1, cos, sin);
  CHECK(cos == std::vector<float>(4, 1.5f));
  CHECK(sin == std::vector<float>(4, 0.0f));
}

}  // namespace
}  // namespace sluice::test
