// Classes and normal forms over all code points, against digests of the reference's, see make_reference.py.
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "models/tokenizer/regex.hpp"
#include "models/tokenizer/unicode.hpp"
#include "models/tokenizer/utf8.hpp"
#include "tests/catch.hpp"
#include "tests/tokenizer/files.hpp"

using namespace sluice;

namespace {

constexpr std::uint64_t kEmptyDigest = 0xCBF29CE484222325U;

std::uint64_t fnv1a(std::uint64_t digest, std::string_view data) {
  for (const char c : data) digest = (digest ^ static_cast<std::uint8_t>(c)) * 0x100000001B3U;
  return digest;
}

template <typename Function>
void for_each_code_point(const Function& function) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c > 0xDFFF) function(c);
  }
}

std::string digest_of_class(const std::string& pattern) {
  const Regex regex(pattern);
  RegexScratch scratch;
  std::uint64_t digest = kEmptyDigest;
  for_each_code_point([&](char32_t c) {
    std::string text;
    utf8::append(text, c);
    Regex::Match match{};
    if (regex.search(unicode::with_stand_ins(text), 0, scratch, match))
      digest = fnv1a(digest, text);
  });
  return fmt::format("{:016x}", digest);
}

std::string digest_of_form(unicode::Form form) {
  std::uint64_t digest = kEmptyDigest;
  std::string text;
  int count = 0;
  for_each_code_point([&](char32_t c) {
    text += ' ';
    utf8::append(text, c);
    text +=
        "\xCC\xB4\xCC\x96"
        "a";
    utf8::append(text, c);
    if (++count % 64 != 0) return;
    digest = fnv1a(digest, unicode::normalize(text, form));
    text.clear();
  });
  return fmt::format("{:016x}", fnv1a(digest, unicode::normalize(text, form)));
}

}  // namespace

TEST_CASE("every code point has the class that the reference's patterns see") {
  const nlohmann::json digests = test::read_data("unicode.json");
  REQUIRE(digests.size() == 11 + 4);  // classes and normal forms
  for (const auto& [pattern, digest] : digests.items()) {
    if (pattern.starts_with("NF")) continue;
    INFO(pattern);
    CHECK(digest_of_class(pattern) == digest);
  }
}

TEST_CASE("every code point is normalised as by the reference") {
  const nlohmann::json digests = test::read_data("unicode.json");
  CHECK(digest_of_form(unicode::Form::nfc) == digests.at("NFC"));
  CHECK(digest_of_form(unicode::Form::nfd) == digests.at("NFD"));
  CHECK(digest_of_form(unicode::Form::nfkc) == digests.at("NFKC"));
  CHECK(digest_of_form(unicode::Form::nfkd) == digests.at("NFKD"));
}

TEST_CASE("a stand-in is as long as what it stands for and stands for itself") {
  for_each_code_point([](char32_t c) {
    std::string text;
    utf8::append(text, c);
    const std::string subject = unicode::with_stand_ins(text);
    if (subject.size() != text.size() || unicode::with_stand_ins(subject) != subject) {
      FAIL("U+" << std::hex << static_cast<std::uint32_t>(c));
    }
  });
}

TEST_CASE("a text that is surely normalised is normalised") {
  for_each_code_point([](char32_t c) {
    std::string text = "a";
    utf8::append(text, c);
    for (const auto form :
         {unicode::Form::nfc, unicode::Form::nfd, unicode::Form::nfkc, unicode::Form::nfkd}) {
      if (unicode::is_surely_normalized(text, form) && unicode::normalize(text, form) != text) {
        FAIL("U+" << std::hex << static_cast<std::uint32_t>(c));
      }
    }
  });
}
