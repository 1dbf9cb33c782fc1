// The operators of a chat template's expressions, but for `and` and `or`, which may leave an operand alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/chat/template_value.hpp"

namespace sluice::chat {

// In bytes. Beyond any chat: a template that doubles a text again and again ends here.
inline constexpr std::size_t kLongestText = std::size_t{1} << 26;

// The value as data. Throws InputError where it is something else.
const Json& data_of(const Value& value);

// The value as an integer; true is 1 and false 0, as in Python. Throws InputError, with `what` it is, where it is
// something else or beyond 64 bits.
std::int64_t integer_of(const Value& value, std::string_view what);

// `symbol` as in Expression::text. Throw InputError where the operands do not fit.
Value apply_unary(std::string_view symbol, const Value& value);
Value apply_binary(std::string_view symbol, const Value& left, const Value& right);

}  // namespace sluice::chat
