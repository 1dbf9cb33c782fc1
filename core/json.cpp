#include "core/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "core/files.hpp"

namespace sluice {
namespace {

constexpr int kDeepest = 64;

// Where a text stands in a file.
struct Source {
  std::string_view text;
  const std::string& file;
  std::size_t first_line = 1;

  // "FILE:LINE:COLUMN" of the last of the `read` bytes that were read.
  std::string place(std::size_t read) const {
    const std::string_view before = text.substr(0, read == 0 ? 0 : read - 1);
    const std::size_t line =
        first_line + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    return fmt::format("{}:{}:{}", file, line, before.size() - line_start + 1);
  }

  // The parser's `what` is "[json.exception.NAME] parse error at line 1, column 2: WHY", or ends
  // with "] WHY" where it gives no place.
  [[noreturn]] void refuse(std::size_t read, std::string_view what) const {
    constexpr std::size_t kMost = 300;  // it quotes the text
    if (const std::size_t name_end = what.find("] "); name_end != std::string_view::npos)
      what.remove_prefix(name_end + 2);
    if (what.starts_with("parse error at ")) what.remove_prefix(what.find(": ") + 2);
    throw InputError("{}: not JSON: {}{}", place(read), what.substr(0, kMost),
                     what.size() > kMost ? "..." : "");
  }

  // To the parser a zero byte is the text's end.
  void refuse_zero_bytes() const {
    const std::size_t at = text.find('\0');
    if (at != std::string_view::npos) throw InputError("{}: not JSON: a zero byte", place(at + 1));
  }
};

// Tells how far the parser has come, which not all of its errors do.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

template <typename Json>
Json parse(const Source& source) {
  source.refuse_zero_bytes();
  const char* const begin = source.text.data();
  const char* furthest = begin;
  const auto read = [&] { return static_cast<std::size_t>(furthest - begin); };
  const auto limit_depth = [&](int depth, typename Json::parse_event_t event, Json&) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kDeepest)
      throw InputError("{}: nested deeper than {} levels", source.place(read()), kDeepest);
    return true;
  };
  try {
    return Json::parse(Cursor(begin, &furthest), Cursor(begin + source.text.size(), &furthest),
                       limit_depth);
  } catch (const typename Json::parse_error& error) {
    source.refuse(error.byte, error.what());
  } catch (const typename Json::exception& error) {
    source.refuse(read(), error.what());
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& file, std::size_t first_line) {
  return parse<nlohmann::json>({text, file, first_line});
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file) {
  return parse<nlohmann::ordered_json>({text, file});
}

nlohmann::json load_json(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

bool JsonEvents::parse_error(std::size_t position, const std::string&,
                             const nlohmann::json::exception& error) {
  position_ = position;
  problem_ = error.what();
  return false;
}

void parse_json_events(std::string_view text, const std::string& file, JsonEvents& reader) {
  const Source source{text, file};
  source.refuse_zero_bytes();
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader))
    source.refuse(reader.position_, reader.problem_);
}

}  // namespace sluice
