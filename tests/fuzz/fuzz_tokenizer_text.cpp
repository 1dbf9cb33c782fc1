// A text: whatever the bytes, ids stand for the same bytes as the text with U+FFFD for what is not UTF-8 (once
// normalised), and streaming decodes as decoding at once does. The vocabulary is the 256 bytes and some merges.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/byte_alphabet.hpp"
#include "models/tokenizer/tokenizer.hpp"
#include "models/tokenizer/unicode.hpp"
#include "models/tokenizer/utf8.hpp"

namespace {

using nlohmann::json;

sluice::Tokenizer make_tokenizer() {
  json vocab;
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    sluice::utf8::append(token, sluice::character_of_byte(static_cast<std::uint8_t>(byte)));
    vocab[token] = next++;
  }
  json merges = json::array();
  for (const char* merge :
       {"a a", "aa aa", "a b", "ab c", "b c", "\xC4\xA0 a", "\xC4\xA0 \xC4\xA0", "e r",
        "\xC3\xA4 \xC2\xB8", "1 2", "' s", "\xC3\x8C \xC4\xA3", "aa ab"}) {
    const std::string_view text = merge;
    const std::size_t space = text.find(' ');
    const std::string joined =
        std::string(text.substr(0, space)) + std::string(text.substr(space + 1));
    if (!vocab.contains(joined)) vocab[joined] = next++;
    merges.push_back(text);
  }
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const json split = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  const json added = {
      {{"id", next}, {"content", "<s>"}, {"special", true}},
      {{"id", next + 1}, {"content", "<l>"}, {"special", true}, {"normalized", false}}};
  const json file = {
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
      {"decoder", byte_level},
      {"added_tokens", added},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
  return sluice::Tokenizer::parse(file.dump(), "tokenizer.json");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const sluice::Tokenizer tokenizer = make_tokenizer();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  const std::string decoded = tokenizer.decode(ids);
  const std::string valid = sluice::utf8::replace_invalid(text);
  // Added tokens are cut out before the text is normalised, which keeps what stands beside them apart.
  if (text.find('<') == std::string_view::npos &&
      decoded != sluice::unicode::normalize(valid, sluice::unicode::Form::nfc)) {
    std::abort();
  }
  if (tokenizer.encode(decoded) != ids && text.find('<') == std::string_view::npos) std::abort();
  sluice::StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const std::int32_t id : ids) {
    const std::string piece = stream.push(id);
    if (sluice::utf8::valid_prefix(piece) != piece.size()) std::abort();
    streamed += piece;
  }
  if (streamed + stream.finish() != decoded) std::abort();
  return 0;
}
