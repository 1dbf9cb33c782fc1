// The tokenizer against answers of the reference, see make_reference.py.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "core/error.hpp"
#include "models/tokenizer/tokenizer.hpp"
#include "models/tokenizer/utf8.hpp"
#include "tests/catch.hpp"
#include "tests/tokenizer/files.hpp"

using namespace sluice;
using nlohmann::json;

namespace {

const Tokenizer& qwen3() {
  static const Tokenizer tokenizer = Tokenizer::load(test::qwen3_directory());
  return tokenizer;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                     bool skip_special = false) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string piece = decoder.push(id);
    CHECK(utf8::valid_prefix(piece) == piece.size());
    text += piece;
  }
  return text + decoder.finish();
}

void check_answers(const Tokenizer& tokenizer, const json& cases) {
  REQUIRE(!cases.empty());
  for (const json& answer : cases) {
    INFO(answer.at("hex"));
    const std::string text = test::from_hex(answer.at("hex").get<std::string>());
    const auto ids = answer.at("ids").get<std::vector<std::int32_t>>();
    CHECK(tokenizer.encode(text, answer.at("special")) == ids);
    CHECK(tokenizer.decode(ids) == answer.at("decoded"));
    CHECK(tokenizer.decode(ids, true) == answer.at("without_special"));
    CHECK(streamed(tokenizer, ids) == answer.at("decoded"));
    CHECK(streamed(tokenizer, ids, true) == answer.at("without_special"));
  }
}

json patched(json file, const json& patch) {
  for (const auto& [key, value] : patch.items()) {
    if (key == "model") {
      for (const auto& [part, of] : value.items()) file["model"][part] = of;
    } else {
      file[key] = value;
    }
  }
  return file;
}

std::string random_bytes(std::mt19937_64& random, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xFF);
  return bytes;
}

}  // namespace

TEST_CASE("Qwen3 strings have the reference's ids and decodings") {
  const json cases = test::read_data("qwen3_strings.json");
  REQUIRE(cases.size() == 40);
  for (const json& answer : cases) {
    INFO(answer.at("text"));
    const auto ids = answer.at("ids").get<std::vector<std::int32_t>>();
    CHECK(qwen3().encode(answer.at("text").get<std::string>()) == ids);
    CHECK(qwen3().decode(ids) == answer.at("decoded"));
  }
}

TEST_CASE("Qwen3 has the reference's answers on mixed, rare and invalid texts") {
  check_answers(qwen3(), test::read_data("qwen3_more.json"));
}

TEST_CASE("what other families have in a tokenizer file means what it means to the reference") {
  const json data = test::read_data("variants.json");
  REQUIRE(data.at("variants").size() > 20);
  for (const json& variant : data.at("variants")) {
    INFO(variant.at("name"));
    const Tokenizer tokenizer =
        Tokenizer::parse(patched(data.at("base"), variant.at("patch")).dump(), "variant.json");
    check_answers(tokenizer, variant.at("cases"));
  }
}

TEST_CASE("ids and tokens are found both ways") {
  CHECK(qwen3().vocab_size() == 151669);
  CHECK(qwen3().id_of("<|im_end|>") == 151645);
  CHECK(qwen3().id_of("\xC4\xA0world") == 1879);
  CHECK(qwen3().id_of("no such token") == std::nullopt);
  CHECK(qwen3().token_of(1879) == "\xC4\xA0world");
  CHECK(qwen3().token_of(151645) == "<|im_end|>");
  CHECK(qwen3().token_of(151669) == std::nullopt);
  CHECK(qwen3().token_of(-1) == std::nullopt);
  CHECK(qwen3().is_special(151645));
  CHECK_FALSE(qwen3().is_special(151667));
  CHECK_FALSE(qwen3().is_special(151669));
}

TEST_CASE("an id without a token decodes to nothing, a negative one is refused") {
  CHECK(qwen3().decode(std::vector<std::int32_t>{9707, 151935, 11, 2147483647}) == "Hello,");
  CHECK(streamed(qwen3(), {9707, 151935, 11}) == "Hello,");
  CHECK_THROWS_AS(qwen3().decode(std::vector<std::int32_t>{-1}), InputError);
}

TEST_CASE("a stream holds back half a code point and lets it go when it is whole or broken") {
  // U+1F642 is two tokens of this vocabulary at least when its bytes come one by one.
  std::vector<std::int32_t> bytes;
  for (const char* token : {"\xC3\xB0", "\xC5\x81", "\xC4\xBB", "\xC4\xA4"}) {
    bytes.push_back(qwen3().id_of(token).value());
  }
  StreamDecoder stream(qwen3());
  CHECK(stream.push(bytes[0]).empty());
  CHECK(stream.push(bytes[1]).empty());
  CHECK(stream.push(bytes[2]).empty());
  CHECK(stream.push(bytes[3]) == "\xF0\x9F\x99\x82");
  CHECK(stream.push(bytes[0]).empty());
  CHECK(stream.push(9707) == "\xEF\xBF\xBDHello");
  CHECK(stream.push(bytes[0]).empty());
  CHECK(stream.finish() == "\xEF\xBF\xBD");
  CHECK(stream.finish().empty());
}

TEST_CASE("random bytes come back as their UTF-8") {
  const std::uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const json data = test::read_data("variants.json");
  const Tokenizer plain =
      Tokenizer::parse(data.at("base").dump(), "base.json");  // normalises nothing
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_bytes(random, random() % 200);
    const std::vector<std::int32_t> ids = plain.encode(text);
    CHECK(plain.decode(ids) == utf8::replace_invalid(text));
    CHECK(streamed(plain, ids) == utf8::replace_invalid(text));
  }
}

TEST_CASE("random ids stream as they decode") {
  const std::uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::int32_t> ids(random() % 60);
    // Single bytes have the lowest ids: half of the ids are of them.
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(random() % (random() % 2 == 0 ? 256 : 151936));
    CHECK(streamed(qwen3(), ids) == qwen3().decode(ids));
  }
}

TEST_CASE("a long text is the sum of its lines") {
  // Cut where the pattern cuts for sure, before a line that begins with a letter.
  const std::vector<std::string> lines = {"The quick brown fox 42\n", "na\xC3\xAFve caf\xC3\xA9\n",
                                          "\xE4\xB8\xAD\xE6\x96\x87\n", "x = f(y);\n"};
  std::string text;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 2000; ++i) {
    text += lines[static_cast<std::size_t>(i) % lines.size()];
    const std::vector<std::int32_t> part =
        qwen3().encode(lines[static_cast<std::size_t>(i) % lines.size()]);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  CHECK(qwen3().encode(text) == ids);
}

TEST_CASE("texts that have no place to cut are tokenised all the same") {
  for (const char* unit : {"a", " ", "7", "<|im_", "\xCC\x81\xCC\x96", "\xE4\xB8\xAD"}) {
    INFO(unit);
    std::string text = "a";
    while (text.size() < 300'000) text += unit;
    const std::string decoded = qwen3().decode(qwen3().encode(text));
    if (std::string_view(unit) != "\xCC\x81\xCC\x96") CHECK(decoded == text);
    CHECK(qwen3().decode(qwen3().encode(decoded)) == decoded);
  }
}
