// generation_config.json, and what config.json says in its place.
#include "models/generation_config.hpp"

#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

TEST_CASE("generation_config.json gives stop ids and the makers' sampling") {
  const auto parse_generation = [](const char* text) {
    return parse_generation_config(text, "DIR/generation_config.json", 1000);
  };
  GenerationConfig g = parse_generation(
      R"({"bos_token_id": 1, "do_sample": true, "eos_token_id": [2, 999], "pad_token_id": 1,
          "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0"})");
  CHECK(g.stop_ids == std::vector<std::int32_t>{2, 999});
  CHECK(g.sample == true);
  CHECK(g.temperature == 0.6);
  CHECK(g.top_k == 20);
  CHECK(g.top_p == 0.95);
  CHECK(!g.min_p);
  g = parse_generation(R"({"eos_token_id": 7, "do_sample": null})");
  CHECK(g.stop_ids == std::vector<std::int32_t>{7});
  CHECK((!g.sample && !g.temperature && !g.top_k && !g.top_p));
  CHECK(parse_generation("{}").stop_ids.empty());
  for (const char* wrong :
       {R"({"eos_token_id": 1000})", R"({"eos_token_id": -1})", R"({"eos_token_id": "2"})",
        R"({"eos_token_id": [2, 1000]})", R"({"eos_token_id": [2, "3"]})",
        R"({"eos_token_id": [-1]})", R"({"do_sample": 1})", R"({"temperature": -1})",
        R"({"top_p": 1.5})", R"({"top_k": -1})", R"({"min_p": "0"})"}) {
    INFO(wrong);
    CHECK(contains(input_error([&] { parse_generation(wrong); }), "DIR/generation_config.json: "));
  }
}

TEST_CASE("stop ids come from config.json where generation_config.json gives none") {
  const ScratchDir dir;
  spit(dir.path() / "config.json", R"({"eos_token_id": [5, 6], "bos_token_id": 4})");
  GenerationConfig g = load_generation_config(dir.path(), 320);
  CHECK(g.stop_ids == std::vector<std::int32_t>{5, 6});
  spit(dir.path() / "generation_config.json", R"({"top_k": 3})");
  g = load_generation_config(dir.path(), 320);
  CHECK(g.stop_ids == std::vector<std::int32_t>{5, 6});
  CHECK(g.top_k == 3);
  spit(dir.path() / "generation_config.json", R"({"eos_token_id": 9})");
  spit(dir.path() / "config.json", "not read");
  g = load_generation_config(dir.path(), 320);
  CHECK(g.stop_ids == std::vector<std::int32_t>{9});
  spit(dir.path() / "generation_config.json", "{");
  CHECK(contains(input_error([&] { load_generation_config(dir.path(), 320); }),
                 "generation_config.json:1:2: not JSON"));
  CHECK(load_generation_config(fixture("llama-tiny"), 320).stop_ids ==
        std::vector<std::int32_t>{2});
  CHECK(load_generation_config(fixture("qwen3-tiny"), 320).stop_ids.empty());
}
