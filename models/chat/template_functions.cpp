#include "models/chat/template_functions.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "models/chat/python_text.hpp"
#include "models/chat/template_operators.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice::chat {
namespace {

// Lives as long as what holds the value.
const std::string& text_of(const Value& value, std::string_view what) {
  if (!value.is_string()) throw InputError("{} must be a string, is {}", what, value.type_name());
  return value.data().get_ref<const std::string&>();
}

Value mapped(const Value& value, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
  const std::string text = printed(value);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::decode(text, at);
    utf8::append(out, static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(point.value))));
    at += point.size;
  }
  return Value::of(std::move(out));
}

std::size_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    const std::string& text = text_of(value, "");
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  if (!value.is_data() || !(value.data().is_array() || value.data().is_object())) {
    throw InputError("the length of {} was asked for", value.type_name());
  }
  return value.data().size();
}

Json pairs_of(const Value& value) {
  Json pairs = Json::array();
  if (value.is_undefined()) return pairs;
  if (!value.is_data() || !value.data().is_object())
    throw InputError("'items' of what is {}", value.type_name());
  for (const auto& [key, element] : value.data().items())
    pairs.push_back(Json::array({key, element}));
  return pairs;
}

Json list_of(const Value& value) {
  Json list = Json::array();
  if (value.is_undefined()) return list;
  if (value.is_string()) {
    const std::string& text = text_of(value, "");
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = utf8::decode(text, at).size;
      list.push_back(text.substr(at, size));
      at += size;
    }
  } else if (value.is_data() && value.data().is_array()) {
    list = value.data();
  } else if (value.is_data() && value.data().is_object()) {
    for (const auto& entry : value.data().items()) list.push_back(entry.key());
  } else {
    throw InputError("{} is not a list", value.type_name());
  }
  return list;
}

// A text that grows by pieces, not without end.
void append(std::string& out, std::string_view piece) {
  if (out.size() + piece.size() > kLongestText)
    throw InputError("a text gets longer than {} bytes", kLongestText);
  out += piece;
}

std::string indent_of(const Value& indent) {
  constexpr std::int64_t kWidest = 64;
  if (indent.is_string()) {
    const std::string& text = text_of(indent, "");
    if (text.size() <= kWidest) return text;
  } else if (const std::int64_t width = integer_of(indent, "the indent of 'tojson'");
             width <= kWidest) {
    return std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  throw InputError("the indent of 'tojson' is wider than {}", kWidest);
}

python::JsonStyle::Separators separators_of(const Value& value) {
  constexpr std::size_t kLongest = 64;
  const Json list = list_of(value);
  if (list.size() != 2 || !list[0].is_string() || !list[1].is_string())
    throw InputError("the separators of 'tojson' must be two strings");
  python::JsonStyle::Separators separators{list[0].get<std::string>(), list[1].get<std::string>()};
  if (std::max(separators.item.size(), separators.key.size()) > kLongest)
    throw InputError("a separator of 'tojson' is longer than {} bytes", kLongest);
  return separators;
}

Value to_json(const Value& value, const BoundArguments& with) {
  if (!value.is_data()) throw InputError("'tojson' of what is {}", value.type_name());
  python::JsonStyle style;
  style.ascii_only = with["ensure_ascii"].is_true();
  style.sort_keys = with["sort_keys"].is_true();
  if (with.has("indent")) style.indent = indent_of(with["indent"]);
  if (with.has("separators")) style.separators = separators_of(with["separators"]);
  return Value::of(python::to_json(value.data(), style));
}

// `most`: how often; every time where it is negative.
Value replaced(std::string_view text, const BoundArguments& with, std::int64_t most) {
  const std::string& from = text_of(with["old"], "what is replaced");
  const std::string& to = text_of(with["new"], "what it is replaced by");
  if (from.empty()) throw InputError("'replace' of an empty text is not supported");
  std::string out;
  std::size_t at = 0;
  for (std::size_t hit = text.find(from); hit != std::string_view::npos && most != 0; --most) {
    append(out, text.substr(at, hit - at));
    append(out, to);
    at = hit + from.size();
    hit = text.find(from, at);
  }
  append(out, text.substr(at));
  return Value::of(std::move(out));
}

Value split(const Value& value, const BoundArguments& with) {
  std::string_view text = text_of(value, "");
  Json parts = Json::array();
  const Value limit = with["maxsplit"];
  const std::int64_t most = limit.is_undefined() ? -1 : integer_of(limit, "maxsplit");
  if (!with.has("sep")) {
    if (most >= 0) throw InputError("'split' by white space with a limit is not supported");
    text = python::strip(text, true, true, std::nullopt);
    std::size_t begin = 0;
    while (begin < text.size()) {
      std::size_t end = begin;
      while (end < text.size() && !python::is_space(utf8::decode(text, end).value)) {
        end += utf8::decode(text, end).size;
      }
      parts.push_back(text.substr(begin, end - begin));
      begin = text.size() - python::strip(text.substr(end), true, false, std::nullopt).size();
    }
    return Value::of(std::move(parts));
  }
  const std::string& between = text_of(with["sep"], "the separator of 'split'");
  if (between.empty()) throw InputError("the separator of 'split' is empty");
  std::size_t begin = 0;
  std::size_t hit = text.find(between);
  while (hit != std::string_view::npos &&
         (most < 0 || static_cast<std::int64_t>(parts.size()) < most)) {
    parts.push_back(text.substr(begin, hit - begin));
    begin = hit + between.size();
    hit = text.find(between, begin);
  }
  parts.push_back(text.substr(begin));
  return Value::of(std::move(parts));
}

Value stripped(std::string_view text, const BoundArguments& with, bool left, bool right) {
  std::optional<std::string_view> set;
  if (with.has("chars")) set = text_of(with["chars"], "what is stripped");
  return Value::of(std::string(python::strip(text, left, right, set)));
}

Value begins_or_ends(const Value& value, const Value& with, bool begins) {
  const std::string& text = text_of(value, "");
  const auto holds = [&](const Json& part) {
    if (!part.is_string()) throw InputError("'startswith' and 'endswith' compare with strings");
    const auto& affix = part.get_ref<const std::string&>();
    return begins ? text.starts_with(affix) : text.ends_with(affix);
  };
  if (with.is_data() && with.data().is_array()) {
    return Value::of(std::any_of(with.data().begin(), with.data().end(), holds));
  }
  text_of(with, "what 'startswith' and 'endswith' compare with");
  return Value::of(holds(with.data()));
}

Value found(const Value& value, const BoundArguments& with) {
  const std::string& text = text_of(value, "");
  const std::size_t hit = text.find(text_of(with["sub"], "what is looked for"));
  if (hit == std::string::npos) return Value::of(-1);
  return Value::of(length_of(Value::of(text.substr(0, hit))));
}

Value counted(const Value& value, const BoundArguments& with) {
  const std::string& text = text_of(value, "");
  const std::string& part = text_of(with["sub"], "what is looked for");
  if (part.empty()) throw InputError("'count' of an empty text is not supported");
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return Value::of(count);
}

// `text_of_element`: how an element becomes a text.
Value joined(const Value& value, std::string_view between,
             std::string (*text_of_element)(const Value&)) {
  std::string out;
  bool first = true;
  for (const Json& element : list_of(value)) {
    if (!first) append(out, between);
    first = false;
    append(out, text_of_element(Value::borrowed(element)));
  }
  return Value::of(std::move(out));
}

Value default_to(const Value& value, const BoundArguments& with) {
  const bool empty_too = with["boolean"].is_true();
  if (!value.is_undefined() && (!empty_too || value.is_true())) return value;
  const Value otherwise = with["default_value"];
  return otherwise.is_undefined() ? Value::of("") : otherwise;
}

Value at_an_end(const Value& value, bool first) {
  const Json list = list_of(value);
  if (list.empty()) return Value::undefined("an end of nothing");
  return Value::of(first ? list.front() : list.back());
}

struct Function {
  std::string_view name;
  Parameters parameters;
  Value (*call)(const Value& of, const BoundArguments& with);
};
using Functions = std::vector<Function>;
using With = BoundArguments;

const Functions& filters() {
  static const Functions all = {
      {"count", {}, [](const Value& v, const With&) { return Value::of(length_of(v)); }},
      {"d", {"default_value", "boolean"}, default_to},
      {"default", {"default_value", "boolean"}, default_to},
      {"first", {}, [](const Value& v, const With&) { return at_an_end(v, true); }},
      {"items", {}, [](const Value& v, const With&) { return Value::of(pairs_of(v)); }},
      {"join",
       {"d"},
       [](const Value& v, const With& with) {
         const Value between = with["d"];
         return joined(v, between.is_undefined() ? "" : text_of(between, "what joins"), printed);
       }},
      {"last", {}, [](const Value& v, const With&) { return at_an_end(v, false); }},
      {"length", {}, [](const Value& v, const With&) { return Value::of(length_of(v)); }},
      {"list", {}, [](const Value& v, const With&) { return Value::of(list_of(v)); }},
      {"lower", {}, [](const Value& v, const With&) { return mapped(v, utf8proc_tolower); }},
      {"replace",
       {"old", "new", "count"},
       [](const Value& v, const With& with) {
         const bool limited = with.has("count");
         return replaced(printed(v), with,
                         limited ? integer_of(with["count"], "the count of 'replace'") : -1);
       }},
      {"safe", {}, [](const Value& v, const With&) { return Value::of(printed(v)); }},
      {"string", {}, [](const Value& v, const With&) { return Value::of(printed(v)); }},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, to_json},
      {"trim",
       {"chars"},
       [](const Value& v, const With& with) { return stripped(printed(v), with, true, true); }},
      {"upper", {}, [](const Value& v, const With&) { return mapped(v, utf8proc_toupper); }},
  };
  return all;
}

const Functions& string_methods() {
  static const Functions all = {
      {"count", {"sub", "/"}, counted},
      {"endswith",
       {"suffix", "/"},
       [](const Value& v, const With& with) { return begins_or_ends(v, with["suffix"], false); }},
      {"find", {"sub", "/"}, found},
      {"join",
       {"iterable", "/"},
       [](const Value& v, const With& with) {
         return joined(with.required("iterable"), text_of(v, ""), [](const Value& element) {
           return std::string(text_of(element, "what is joined"));
         });
       }},
      {"lower", {}, [](const Value& v, const With&) { return mapped(v, utf8proc_tolower); }},
      {"lstrip",
       {"chars", "/"},
       [](const Value& v, const With& with) {
         return stripped(text_of(v, ""), with, true, false);
       }},
      {"replace",
       {"old", "new", "count", "/"},
       [](const Value& v, const With& with) {
         const Value count = with["count"];
         return replaced(text_of(v, ""), with,
                         count.is_undefined() ? -1 : integer_of(count, "the count of 'replace'"));
       }},
      {"rstrip",
       {"chars", "/"},
       [](const Value& v, const With& with) {
         return stripped(text_of(v, ""), with, false, true);
       }},
      {"split", {"sep", "maxsplit"}, split},
      {"startswith",
       {"prefix", "/"},
       [](const Value& v, const With& with) { return begins_or_ends(v, with["prefix"], true); }},
      {"strip",
       {"chars", "/"},
       [](const Value& v, const With& with) { return stripped(text_of(v, ""), with, true, true); }},
      {"upper", {}, [](const Value& v, const With&) { return mapped(v, utf8proc_toupper); }},
  };
  return all;
}

const Functions& mapping_methods() {
  static const Functions all = {
      {"get",
       {"key", "default", "/"},
       [](const Value& v, const With& with) {
         const auto entry = v.data().find(text_of(with["key"], "the key of 'get'"));
         if (entry != v.data().end()) return Value::within(v, *entry);
         const Value otherwise = with["default"];
         return otherwise.is_undefined() ? Value::of(nullptr) : otherwise;
       }},
      {"items", {}, [](const Value& v, const With&) { return Value::of(pairs_of(v)); }},
      {"keys", {}, [](const Value& v, const With&) { return Value::of(list_of(v)); }},
      {"values",
       {},
       [](const Value& v, const With&) {
         Json values = Json::array();
         for (const Json& element : v.data()) values.push_back(element);
         return Value::of(std::move(values));
       }},
  };
  return all;
}

const Function* find(const Functions& functions, std::string_view name) {
  const auto found = std::find_if(functions.begin(), functions.end(),
                                  [&](const Function& function) { return function.name == name; });
  return found == functions.end() ? nullptr : &*found;
}

const Function* find_method(std::string_view name, const Value& value) {
  if (value.is_string()) return find(string_methods(), name);
  return value.is_data() && value.data().is_object() ? find(mapping_methods(), name) : nullptr;
}

Value call(const Function& function, const Value& value, const Arguments& arguments) {
  return function.call(value, BoundArguments(function.name, function.parameters, arguments));
}

}  // namespace

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  const Function* const filter = find(filters(), name);
  if (filter == nullptr) throw InputError("the filter '{}' is not supported", name);
  return call(*filter, value, arguments);
}

bool apply_test(std::string_view name, const Value& value) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  const bool is_data = value.is_data();
  if (name == "none") return is_data && value.data().is_null();
  if (name == "string") return value.is_string();
  if (name == "mapping") return is_data && value.data().is_object();
  if (name == "sequence") return value.is_string() || (is_data && value.data().is_structured());
  if (name == "iterable") return !is_data || value.is_string() || value.data().is_structured();
  if (name == "number") return is_data && (value.data().is_number() || value.data().is_boolean());
  if (name == "integer") return is_data && value.data().is_number_integer();
  if (name == "float") return is_data && value.data().is_number_float();
  if (name == "boolean") return is_data && value.data().is_boolean();
  if (name == "true") return is_data && value.data() == true;
  if (name == "false") return is_data && value.data() == false;
  if (name == "odd" || name == "even") {
    return (integer_of(value, "what is odd or even") % 2 != 0) == (name == "odd");
  }
  throw InputError("the test 'is {}' is not supported", name);
}

bool has_method(std::string_view name, const Value& value) {
  return find_method(name, value) != nullptr;
}

Value call_method(std::string_view name, const Value& value, const Arguments& arguments) {
  return call(*find_method(name, value), value, arguments);
}

std::string printed(const Value& value) {
  if (value.is_undefined()) return "";
  if (value.is_string()) return text_of(value, "");
  if (value.is_data() && !value.data().is_structured()) {
    const Json& data = value.data();
    if (data.is_null()) return "None";
    if (data.is_boolean()) return data.get<bool>() ? "True" : "False";
    if (data.is_number_float()) return python::float_repr(data.get<double>());
    return data.dump();
  }
  throw InputError("{} stands where a text is needed", value.type_name());
}

}  // namespace sluice::chat
