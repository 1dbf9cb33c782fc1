#include "models/chat/template_operators.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "models/chat/template_functions.hpp"

namespace sluice::chat {
namespace {

constexpr std::size_t kLongestList = 1'000'000;
constexpr std::string_view kOperand = "an operand";

[[noreturn]] void overflow() { throw InputError("an integer beyond 64 bits"); }

std::string checked(std::string text) {
  if (text.size() > kLongestText)
    throw InputError("a text gets longer than {} bytes", kLongestText);
  return text;
}

bool equal(const Value& left, const Value& right) {
  if (left.is_undefined() || right.is_undefined())
    return left.is_undefined() && right.is_undefined();
  if (!left.is_data() || !right.is_data()) return left.variables() == right.variables();
  return left.data() == right.data();
}

bool contains(const Value& whole, const Value& part) {
  if (whole.is_undefined()) return false;
  const Json& data = data_of(whole);
  if (data.is_string()) {
    if (!part.is_string()) throw InputError("{} is looked for in a string", part.type_name());
    return data.get_ref<const std::string&>().find(part.data().get_ref<const std::string&>()) !=
           std::string::npos;
  }
  if (data.is_object())
    return part.is_string() && data.contains(part.data().get_ref<const std::string&>());
  if (!data.is_array()) throw InputError("'in' looks into {}", whole.type_name());
  return part.is_data() && std::find(data.begin(), data.end(), part.data()) != data.end();
}

bool ordered(std::string_view symbol, const Value& left, const Value& right) {
  const Json& a = data_of(left);
  const Json& b = data_of(right);
  if (!(a.is_number() && b.is_number()) && !(a.is_string() && b.is_string())) {
    throw InputError("{} and {} have no order", left.type_name(), right.type_name());
  }
  // Read as integers, so that none beyond 64 bits is taken for a negative one.
  const bool integers = a.is_number_integer() && b.is_number_integer();
  const bool less = integers ? integer_of(left, kOperand) < integer_of(right, kOperand) : a < b;
  const bool greater = integers ? integer_of(left, kOperand) > integer_of(right, kOperand) : b < a;
  if (symbol == "<") return less;
  if (symbol == ">") return greater;
  return symbol == "<=" ? !greater : !less;
}

Value of_floats(std::string_view symbol, double a, double b) {
  if (symbol == "+") return Value::of(a + b);
  if (symbol == "-") return Value::of(a - b);
  if (symbol == "*") return Value::of(a * b);
  if (b == 0.0) throw InputError("division by zero");
  if (symbol == "/") return Value::of(a / b);
  const double down = std::floor(a / b);
  return Value::of(symbol == "//" ? down : a - down * b);
}

Value negated(std::int64_t number) {
  if (number == std::numeric_limits<std::int64_t>::min()) overflow();
  return Value::of(-number);
}

Value arithmetic(std::string_view symbol, const Value& left, const Value& right) {
  const auto is_number = [](const Value& v) {
    return data_of(v).is_number() || data_of(v).is_boolean();
  };
  if (!is_number(left) || !is_number(right)) {
    throw InputError("'{}' of {} and {}", symbol, left.type_name(), right.type_name());
  }
  if (left.data().is_number_float() || right.data().is_number_float() || symbol == "/") {
    return of_floats(symbol, left.data().is_boolean() ? left.is_true() : left.data().get<double>(),
                     right.data().is_boolean() ? right.is_true() : right.data().get<double>());
  }
  const std::int64_t a = integer_of(left, kOperand);
  const std::int64_t b = integer_of(right, kOperand);
  std::int64_t result = 0;
  const bool is_sum = symbol == "+" || symbol == "-" || symbol == "*";
  if ((symbol == "+" && __builtin_add_overflow(a, b, &result)) ||
      (symbol == "-" && __builtin_sub_overflow(a, b, &result)) ||
      (symbol == "*" && __builtin_mul_overflow(a, b, &result))) {
    overflow();
  }
  if (is_sum) return Value::of(result);
  if (b == 0) throw InputError("division by zero");
  if (b == -1) return symbol == "%" ? Value::of(0) : negated(a);
  // Python rounds down.
  const bool rounds_up = a % b != 0 && (a % b < 0) != (b < 0);
  if (symbol == "%") return Value::of(rounds_up ? a % b + b : a % b);
  return Value::of(rounds_up ? a / b - 1 : a / b);
}

}  // namespace

const Json& data_of(const Value& value) {
  if (value.is_undefined()) throw InputError("'{}' is not defined", value.name());
  if (!value.is_data()) throw InputError("{} stands where data is needed", value.type_name());
  return value.data();
}

std::int64_t integer_of(const Value& value, std::string_view what) {
  if (value.is_data() && value.data().is_boolean()) return value.data().get<bool>() ? 1 : 0;
  if (!value.is_data() || !value.data().is_number_integer())
    throw InputError("{} must be an integer, is {}", what, value.type_name());
  if (value.data().is_number_unsigned() &&
      value.data().get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    overflow();
  }
  return value.data().get<std::int64_t>();
}

Value apply_unary(std::string_view symbol, const Value& value) {
  if (symbol == "not") return Value::of(!value.is_true());
  const Json& data = data_of(value);
  if (data.is_number_float())
    return Value::of(symbol == "-" ? -data.get<double>() : data.get<double>());
  const std::int64_t number = integer_of(value, kOperand);
  return symbol == "-" ? negated(number) : Value::of(number);
}

Value apply_binary(std::string_view symbol, const Value& left, const Value& right) {
  if (symbol == "==") return Value::of(equal(left, right));
  if (symbol == "!=") return Value::of(!equal(left, right));
  if (symbol == "in") return Value::of(contains(right, left));
  if (symbol == "not in") return Value::of(!contains(right, left));
  if (symbol == "~") return Value::of(checked(printed(left) + printed(right)));
  if (symbol == "<" || symbol == ">" || symbol == "<=" || symbol == ">=") {
    return Value::of(ordered(symbol, left, right));
  }
  if (symbol == "+" && left.is_string() && right.is_string()) {
    return Value::of(checked(left.data().get<std::string>() + right.data().get<std::string>()));
  }
  if (symbol == "+" && data_of(left).is_array() && data_of(right).is_array()) {
    Json list = left.data();
    if (list.size() + right.data().size() > kLongestList) {
      throw InputError("a list of more than {} elements", kLongestList);
    }
    list.insert(list.end(), right.data().begin(), right.data().end());
    return Value::of(std::move(list));
  }
  return arithmetic(symbol, left, right);
}

}  // namespace sluice::chat
