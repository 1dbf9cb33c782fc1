#include "models/chat/template_functions.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "core/error.hpp"
#include "models/chat/python_text.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice::chat {
namespace {

const std::string& text_of(const Value& value, std::string_view what) {
  if (!value.is_string()) throw InputError("{} must be a string, is {}", what, value.type_name());
  return value.data().get_ref<const std::string&>();
}

std::string mapped(std::string_view text, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::decode(text, at);
    utf8::append(out, static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(point.value))));
    at += point.size;
  }
  return out;
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

std::int64_t integer_of(const Value& value, std::string_view what) {
  if (!value.is_data() || !value.data().is_number_integer()) {
    throw InputError("{} must be an integer, is {}", what, value.type_name());
  }
  return value.data().get<std::int64_t>();
}

Json pairs_of(const Json& object) {
  Json pairs = Json::array();
  for (const auto& [key, element] : object.items()) pairs.push_back(Json::array({key, element}));
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

Value json_of(const Value& value, const Arguments& arguments) {
  if (!value.is_data()) throw InputError("'tojson' of what is {}", value.type_name());
  python::JsonStyle style;
  style.ascii_only =
      arguments.get(std::numeric_limits<std::size_t>::max(), "ensure_ascii").is_true();
  style.sort_keys = arguments.get(std::numeric_limits<std::size_t>::max(), "sort_keys").is_true();
  const Value indent = arguments.get(0, "indent");
  if (indent.is_data() && !indent.data().is_null()) {
    style.indent = static_cast<int>(std::clamp<std::int64_t>(integer_of(indent, "indent"), 0, 16));
  }
  return Value::of(python::to_json(value.data(), style));
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) throw InputError("'replace' of an empty text is not supported");
  std::string out;
  std::size_t at = 0;
  for (std::size_t hit = text.find(from); hit != std::string_view::npos;
       hit = text.find(from, at)) {
    out.append(text.substr(at, hit - at)).append(to);
    at = hit + from.size();
  }
  return out.append(text.substr(at));
}

std::string joined(const Json& list, std::string_view between) {
  std::string out;
  bool first = true;
  for (const Json& element : list) {
    if (!first) out.append(between);
    first = false;
    out += printed(Value::borrowed(element));
  }
  return out;
}

Json split(std::string_view text, const Arguments& arguments) {
  Json parts = Json::array();
  const Value separator = arguments.get(0, "sep");
  const Value limit = arguments.get(1, "maxsplit");
  const std::int64_t most = limit.is_undefined() ? -1 : integer_of(limit, "maxsplit");
  if (separator.is_undefined() || (separator.is_data() && separator.data().is_null())) {
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
    return parts;
  }
  const std::string& between = text_of(separator, "the separator of 'split'");
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
  return parts;
}

std::optional<std::string_view> set_of(const Arguments& arguments) {
  const Value set = arguments.get(0, "chars");
  if (set.is_undefined() || (set.is_data() && set.data().is_null())) return std::nullopt;
  return text_of(set, "what is stripped");
}

bool begins_or_ends(const std::string& text, const Value& with, bool begins) {
  const auto holds = [&](const Json& part) {
    if (!part.is_string()) throw InputError("'startswith' and 'endswith' compare with strings");
    const auto& affix = part.get_ref<const std::string&>();
    return begins ? text.starts_with(affix) : text.ends_with(affix);
  };
  if (with.is_data() && with.data().is_array()) {
    return std::any_of(with.data().begin(), with.data().end(), holds);
  }
  text_of(with, "what 'startswith' and 'endswith' compare with");
  return holds(with.data());
}

constexpr std::array<std::string_view, 12> kStringMethods = {
    "strip", "lstrip", "rstrip",  "split", "startswith", "endswith",
    "upper", "lower",  "replace", "join",  "find",       "count"};
constexpr std::array<std::string_view, 4> kMappingMethods = {"items", "keys", "values", "get"};

Value call_string_method(std::string_view name, const Value& value, const Arguments& arguments) {
  const std::string& text = text_of(value, "");
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const std::optional<std::string_view> set = set_of(arguments);
    return Value::of(std::string(python::strip(text, name != "rstrip", name != "lstrip", set)));
  }
  if (name == "split") return Value::of(split(text, arguments));
  if (name == "startswith" || name == "endswith") {
    return Value::of(begins_or_ends(text, arguments.get(0, ""), name == "startswith"));
  }
  if (name == "upper") return Value::of(mapped(text, utf8proc_toupper));
  if (name == "lower") return Value::of(mapped(text, utf8proc_tolower));
  if (name == "replace") {
    return Value::of(replaced(text, text_of(arguments.get(0, "old"), "what is replaced"),
                              text_of(arguments.get(1, "new"), "what it is replaced by")));
  }
  if (name == "join") return Value::of(joined(list_of(arguments.get(0, "")), text));
  const std::string& part = text_of(arguments.get(0, ""), "what is looked for");
  if (name == "find") {
    const std::size_t hit = text.find(part);
    if (hit == std::string::npos) return Value::of(-1);
    return Value::of(length_of(Value::of(text.substr(0, hit))));
  }
  if (part.empty()) throw InputError("'count' of an empty text is not supported");
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return Value::of(count);
}

Value call_mapping_method(std::string_view name, const Value& value, const Arguments& arguments) {
  const Json& object = value.data();
  if (name == "items") return Value::of(pairs_of(object));
  if (name == "keys") return Value::of(list_of(value));
  if (name == "values") {
    Json values = Json::array();
    for (const Json& element : object) values.push_back(element);
    return Value::of(std::move(values));
  }
  const auto found = object.find(text_of(arguments.get(0, "key"), "the key of 'get'"));
  if (found != object.end()) return Value::within(value, *found);
  const Value otherwise = arguments.get(1, "default");
  return otherwise.is_undefined() ? Value::of(nullptr) : otherwise;
}

}  // namespace

Value Arguments::get(std::size_t index, std::string_view name) const {
  if (index < positional.size()) return positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return Value::undefined(std::string(name));
}

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  if (name == "tojson") return json_of(value, arguments);
  if (name == "trim")
    return Value::of(std::string(python::strip(printed(value), true, true, set_of(arguments))));
  if (name == "length" || name == "count") return Value::of(length_of(value));
  if (name == "string" || name == "safe") return Value::of(printed(value));
  if (name == "upper") return Value::of(mapped(printed(value), utf8proc_toupper));
  if (name == "lower") return Value::of(mapped(printed(value), utf8proc_tolower));
  if (name == "list") return Value::of(list_of(value));
  if (name == "first" || name == "last") {
    const Json list = list_of(value);
    if (list.empty()) return Value::undefined(std::string(name) + " of nothing");
    return Value::of(name == "first" ? list.front() : list.back());
  }
  if (name == "items") {
    if (value.is_undefined()) return Value::of(Json::array());
    if (!value.is_data() || !value.data().is_object()) {
      throw InputError("'items' of what is {}", value.type_name());
    }
    return Value::of(pairs_of(value.data()));
  }
  if (name == "join") {
    const Value between = arguments.get(0, "d");
    return Value::of(
        joined(list_of(value), between.is_undefined() ? "" : text_of(between, "what joins")));
  }
  if (name == "replace") {
    return Value::of(replaced(printed(value), text_of(arguments.get(0, "old"), "what is replaced"),
                              text_of(arguments.get(1, "new"), "what it is replaced by")));
  }
  if (name == "default" || name == "d") {
    const bool empty_too = arguments.get(1, "boolean").is_true();
    if (!value.is_undefined() && (!empty_too || value.is_true())) return value;
    const Value otherwise = arguments.get(0, "default_value");
    return otherwise.is_undefined() ? Value::of("") : otherwise;
  }
  throw InputError("the filter '{}' is not supported", name);
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
  const auto among = [name](const auto& methods) {
    return std::find(methods.begin(), methods.end(), name) != methods.end();
  };
  if (value.is_string()) return among(kStringMethods);
  return value.is_data() && value.data().is_object() && among(kMappingMethods);
}

Value call_method(std::string_view name, const Value& value, const Arguments& arguments) {
  return value.is_string() ? call_string_method(name, value, arguments)
                           : call_mapping_method(name, value, arguments);
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
