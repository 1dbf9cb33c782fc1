// The alphabet of byte-level BPE: a printable character for each byte, in which a tokenizer file spells its
// tokens. Printable ASCII and Latin-1 bytes are themselves; the others are U+0100 and on, in ascending order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// The character of a byte.
char32_t character_of_byte(std::uint8_t byte);

// The bytes that `token` spells; empty where it has a character that is not of the alphabet.
std::optional<std::string> bytes_of_token(std::string_view token);  // `token` is valid UTF-8

}  // namespace sluice
