#include "models/tokenizer/byte_alphabet.hpp"

#include <array>

#include "models/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;
constexpr std::size_t kCharacters = 0x144;  // one beyond the last substitute
constexpr std::int16_t kNoByte = -1;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<std::int16_t, kCharacters> bytes{};

  constexpr Alphabet() {
    for (auto& byte : bytes) byte = kNoByte;
    char32_t substitute = kFirstSubstitute;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t character =
          stands_for_itself(byte) ? static_cast<char32_t>(byte) : substitute++;
      characters[byte] = character;
      bytes[character] = static_cast<std::int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

char32_t character_of_byte(std::uint8_t byte) { return kAlphabet.characters[byte]; }

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const utf8::CodePoint point = utf8::decode(token, at);
    if (point.value >= kCharacters || kAlphabet.bytes[point.value] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.bytes[point.value]));
    at += point.size;
  }
  return bytes;
}

}  // namespace sluice
