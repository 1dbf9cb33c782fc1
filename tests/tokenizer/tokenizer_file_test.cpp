// Tokenizer files that are broken, hostile or not supported: each is refused with its place.
#include <functional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/tokenizer/tokenizer.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/tokenizer/files.hpp"

using namespace sluice;
using nlohmann::json;

namespace {

json small_file() {
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return {{"added_tokens", {{{"id", 4}, {"content", "<s>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"c", 3}}},
            {"merges", {"a b"}}}}};
}

std::string refusal(const json& file) {
  try {
    Tokenizer::parse(file.dump(), "dir/tokenizer.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "it was accepted";
}

json split_by(const std::string& pattern) {
  json file = small_file();
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, file["pre_tokenizer"]}}};
  return file;
}

}  // namespace

TEST_CASE("the small file that the others are made of is accepted") {
  const Tokenizer tokenizer = Tokenizer::parse(small_file().dump(), "t.json");
  CHECK(tokenizer.encode("abc<s>ba") == std::vector<std::int32_t>{2, 3, 4, 1, 0});
  CHECK(tokenizer.vocab_size() == 5);
}

TEST_CASE("a tokenizer file that is wrong is refused with file and place") {
  struct Case {
    std::string says;
    std::function<void(json&)> change;
  };
  const std::vector<Case> cases = {
      {"model is missing", [](json& f) { f.erase("model"); }},
      {"model is [], an object is needed", [](json& f) { f["model"] = json::array(); }},
      {"model.type: 'Unigram' is not supported", [](json& f) { f["model"]["type"] = "Unigram"; }},
      {"model.vocab is 3, an object is needed", [](json& f) { f["model"]["vocab"] = 3; }},
      {"the id of the token 'a' must be an integer from 0 to",
       [](json& f) { f["model"]["vocab"]["a"] = -1; }},
      {"is 1.5", [](json& f) { f["model"]["vocab"]["a"] = 1.5; }},
      {"is 4000000000", [](json& f) { f["model"]["vocab"]["a"] = 4000000000U; }},
      {"is string", [](json& f) { f["model"]["vocab"]["a"] = "0"; }},
      {"the tokens 'ab' and 'b' have the same id 2", [](json& f) { f["model"]["vocab"]["b"] = 2; }},
      {"model.merges is \"a b\", an array is needed",
       [](json& f) { f["model"]["merges"] = "a b"; }},
      {"model.merges[0]: the token 'x' is not in the vocabulary",
       [](json& f) { f["model"]["merges"] = {"a x"}; }},
      {"model.merges[0]: the token 'ac' is not in the vocabulary",
       [](json& f) { f["model"]["merges"] = {"a c"}; }},
      {"model.merges[1]: 'ab' must be two tokens",
       [](json& f) {
         f["model"]["merges"] = {"a b", "ab"};
       }},
      {"model.merges[0]: must be",
       [](json& f) {
         f["model"]["merges"] = json::array({json::array({"a", 1})});
       }},
      {"model.dropout: merging at random", [](json& f) { f["model"]["dropout"] = 0.1; }},
      {"model.byte_fallback: is not supported",
       [](json& f) { f["model"]["byte_fallback"] = true; }},
      {"model.end_of_word_suffix: is not supported",
       [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.ignore_merges is 1, true or false is needed",
       [](json& f) { f["model"]["ignore_merges"] = 1; }},
      {"model.unk_token: the token '<unk>' is not in the vocabulary",
       [](json& f) { f["model"]["unk_token"] = "<unk>"; }},
      {"normalizer.type: 'Lowercase' is not supported",
       [](json& f) {
         f["normalizer"] = {{"type", "Lowercase"}};
       }},
      {"pre_tokenizer.type: 'Metaspace' is not supported",
       [](json& f) {
         f["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {"must end with ByteLevel", [](json& f) { f["pre_tokenizer"] = nullptr; }},
      {"must end with ByteLevel",
       [](json& f) {
         f["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
       }},
      {"behind ByteLevel",
       [](json& f) {
         const json one = f["pre_tokenizer"];
         f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {one, one}}};
       }},
      {"sequences more than 8 deep",
       [](json& f) {
         for (int i = 0; i < 20; ++i)
           f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {f["pre_tokenizer"]}}};
       }},
      {"decoder", [](json& f) { f.erase("decoder"); }},
      {"decoder.type: 'WordPiece' is not supported",
       [](json& f) {
         f["decoder"] = {{"type", "WordPiece"}};
       }},
      {"post_processor.type: 'BertProcessing' is not supported",
       [](json& f) {
         f["post_processor"] = {{"type", "BertProcessing"}};
       }},
      {"post_processor.special_tokens is missing",
       [](json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}}};
       }},
      {"added_tokens[0].id is 2147483648, an integer from 0 to",
       [](json& f) { f["added_tokens"][0]["id"] = 1U << 31; }},
      {"the token '<s>' has the id 9, but the next free one is 4",
       [](json& f) { f["added_tokens"][0]["id"] = 9; }},
      {"the token 'a' has the id 4, but the vocabulary says 0",
       [](json& f) { f["added_tokens"][0]["content"] = "a"; }},
      {"an empty token", [](json& f) { f["added_tokens"][0]["content"] = ""; }},
      {"added_tokens[0].lstrip is \"yes\", true or false is needed",
       [](json& f) { f["added_tokens"][0]["lstrip"] = "yes"; }},
      {"added_tokens[1]: the token '<s>' has the id 4",
       [](json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); }},
  };
  for (const Case& wrong : cases) {
    json file = small_file();
    wrong.change(file);
    const std::string message = refusal(file);
    CHECK_THAT(message, Contains("dir/tokenizer.json: "));
    CHECK_THAT(message, Contains(wrong.says));
  }
}

TEST_CASE("what is no JSON, or not there, is refused") {
  for (const char* text :
       {"", "{", "[1,2", "{\"model\":}", "nonsense", "\xFF\xFE", "{\"a\":\"\xFF\"}"}) {
    CHECK_THROWS_WITH(Tokenizer::parse(text, "t.json"), Contains("t.json:1:"));
  }
  CHECK_THROWS_WITH(Tokenizer::parse("[]", "t.json"),
                    Contains("t.json: is [], an object is needed"));
  CHECK_THROWS_AS(Tokenizer::parse(std::string(200'000, '['), "t.json"), InputError);
  CHECK_THROWS_WITH(Tokenizer::load("no/such/directory"),
                    Contains("no/such/directory: no such file"));
}

TEST_CASE("a pattern that PCRE2 would read differently from the reference is refused by name") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(\w+)", R"('\w')"},
      {R"(a\b)", R"('\b')"},
      {R"(\h)", R"('\h')"},
      {R"(\p{Han}+)", "'Han'"},
      {R"(\pL)", "without braces"},
      {R"([a[b]])", "class within"},
      {"[a&&b]", "'&&'"},
      {"(?m)a", "'(?m'"},
      {"a(?i)b", "'(?i'"},
      {"(*ACCEPT)", "'(*'"},
      {"a{2}+", "interval"},
      {"[a", "not closed"},
      {"[]a]", "empty class"},
      {"(a", "not valid"},
      {"a**", "not valid"},
      {R"((?i:\p{Lu}))", "case"},
      {R"(\x{110000})", "code point"},
      {R"((a)\1)", R"('\1')"},
      {"[\xE1\xB0\x80-\xE1\xB3\xBF]", "versions of Unicode"},
      {"\\", "nothing behind"}};
  for (const auto& [pattern, says] : cases) {
    INFO(pattern);
    const std::string message = refusal(split_by(pattern));
    CHECK_THAT(message, Contains("pre_tokenizer.pretokenizers[0].pattern: "));
    CHECK_THAT(message, Contains(says));
  }
}

TEST_CASE("a pattern that backtracks without end fails, it does not hang") {
  const Tokenizer tokenizer = Tokenizer::parse(split_by("(?:a|a)*[bc]").dump(), "t.json");
  CHECK_THROWS_AS(tokenizer.encode(std::string(200, 'a')), Error);
}
