#include "core/json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "core/error.hpp"

namespace sluice {
namespace {

constexpr int kDeepest = 64;

using json = nlohmann::json;

}  // namespace

std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw InputError("{}: {}", path.string(),
                     std::filesystem::exists(path, error) ? "not a file" : "no such file");
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError("{}: cannot be opened for reading", path.string());
  std::string text;
  // Read up to the limit rather than asked for its size: the file may grow, or be a device.
  for (std::string piece(1 << 16, '\0'); in; text.append(piece, 0, in.gcount())) {
    if (text.size() > max_bytes) break;
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
  }
  if (text.size() > max_bytes) {
    throw InputError("{}: larger than {} bytes, the most such a file may have", path.string(),
                     max_bytes);
  }
  if (in.bad()) throw InputError("{}: reading failed after {} bytes", path.string(), text.size());
  return text;
}

json parse_json(std::string_view text, const std::string& file) {
  const auto limit_depth = [&](int depth, json::parse_event_t event, json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kDeepest) {
      throw InputError("{}: nested deeper than {} levels", file, kDeepest);
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), limit_depth);
  } catch (const json::exception& e) {
    throw InputError("{}: not JSON: {}", file, e.what());
  }
}

std::string shown(const json& value) {
  constexpr std::size_t kMost = 60;
  // Broken UTF-8 is replaced: a message must always come out.
  std::string text = value.is_structured() && value.size() > 8
                         ? fmt::format("{} of {} entries", value.type_name(), value.size())
                         : value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

JsonObject::JsonObject(const json& value, std::string file, std::string place)
    : value_(&value), file_(std::move(file)), place_(std::move(place)) {
  if (!value.is_object()) {
    throw InputError("{}: {}{}is {}, an object is needed", file_, place_, place_.empty() ? "" : " ",
                     shown(value));
  }
}

std::string JsonObject::where(const char* key) const {
  return fmt::format("{}: {}{}{}", file_, place_, place_.empty() ? "" : ".", key);
}

const json* JsonObject::find(const char* key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonObject::has(const char* key) const { return find(key) != nullptr; }

const json& JsonObject::at(const char* key) const {
  const json* value = find(key);
  if (!value) throw InputError("{} is missing", where(key));
  return *value;
}

std::int64_t JsonObject::integer(const char* key, std::int64_t least, std::int64_t most) const {
  const json& value = at(key);
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <=
                              static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
                        : value.is_number_integer();
  const std::int64_t n = fits ? value.get<std::int64_t>() : 0;
  if (!fits || n < least || n > most) {
    throw InputError("{} is {}, an integer from {} to {} is needed", where(key), shown(value),
                     least, most);
  }
  return n;
}

double JsonObject::number(const char* key, double least, double most) const {
  const json& value = at(key);
  const double x = value.is_number() ? value.get<double>() : std::nan("");
  if (!(x >= least && x <= most)) {  // a NaN too
    throw InputError("{} is {}, a number from {} to {} is needed", where(key), shown(value), least,
                     most);
  }
  return x;
}

bool JsonObject::boolean(const char* key) const {
  const json& value = at(key);
  if (!value.is_boolean()) {
    throw InputError("{} is {}, true or false is needed", where(key), shown(value));
  }
  return value.get<bool>();
}

std::string JsonObject::text(const char* key) const {
  const json& value = at(key);
  if (!value.is_string())
    throw InputError("{} is {}, a string is needed", where(key), shown(value));
  return value.get<std::string>();
}

JsonObject JsonObject::object(const char* key) const {
  return JsonObject(at(key), file_, place_.empty() ? key : place_ + "." + key);
}

}  // namespace sluice
