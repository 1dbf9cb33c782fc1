// The operators of a chat template's expressions, but for `and` and `or`, which may leave an operand alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/chat/template_value.hpp"

namespace sluice::chat {

// In bytes. Beyond any chat: a template that doubles a text again and again ends here.
inline constexpr std::size_t kLongestText = std::size_t{1} << 26;

// The value as data, or as an integer. Throw InputError where it is something else.
const Json& data_of(const Value& value);
std::int64_t integer_of(const Value& value);

// `symbol` as in Expression::text. Throw InputError where the operands do not fit.
Value apply_unary(std::string_view symbol, const Value& value);
Value apply_binary(std::string_view symbol, const Value& left, const Value& right);

}  // namespace sluice::chat
