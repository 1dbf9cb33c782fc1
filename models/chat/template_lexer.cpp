#include "models/chat/template_lexer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/error.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice::chat {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";
constexpr std::array<std::string_view, 6> kLongSymbols = {"==", "!=", "<=", ">=", "//", "**"};
constexpr std::string_view kSymbols = "+-*/%~<>=.,:|()[]{}";

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Line ends are \n, and one at the very end does not count.
std::string unify_line_ends(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(unify_line_ends(source)), in_(source_) {}

  std::vector<Token> run() {
    while (at_ < in_.size()) {
      const std::size_t open = next_tag();
      text_before(open);
      if (open == in_.size()) break;
      move_to(open);
      const char kind = in_[at_ + 1];
      const char sign = peek(2);
      move_to(at_ + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (kind == '#') {
        comment();
      } else {
        tag(kind == '{');
      }
    }
    put(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InputError("line {}: {}", line_, fmt::format(format, std::forward<Args>(args)...));
  }

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }

  void put(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, line_, std::move(text), nullptr});
  }

  void move_to(std::size_t to) {
    line_ += static_cast<int>(std::count(in_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         in_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  std::size_t next_tag() const {
    for (std::size_t i = at_; i + 1 < in_.size(); ++i) {
      if (in_[i] == '{' && (in_[i + 1] == '{' || in_[i + 1] == '%' || in_[i + 1] == '#')) return i;
    }
    return in_.size();
  }

  void text_before(std::size_t open) {
    std::string_view text = in_.substr(at_, open - at_);
    if (open < in_.size()) {
      const char sign = open + 2 < in_.size() ? in_[open + 2] : '\0';
      if (sign == '-') {
        text = text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
      } else if (sign != '+' && in_[open + 1] != '{') {
        // Before a block that begins its line, the indentation goes.
        const std::size_t line = text.rfind('\n') + 1;
        if ((line > 0 || at_line_start_) &&
            text.find_first_not_of(kWhiteSpace, line) == std::string_view::npos) {
          text = text.substr(0, line);
        }
      }
    }
    if (!text.empty()) put(Token::Kind::text, std::string(text));
    move_to(open);
  }

  // Behind a tag that ended with `-`, all white space goes; behind a block, the line's end.
  void after_tag(char sign, bool is_block) {
    std::size_t to = at_;
    if (sign == '-') {
      to = std::min(in_.find_first_not_of(kWhiteSpace, at_), in_.size());
    } else if (is_block && sign != '+' && peek() == '\n') {
      ++to;
    }
    at_line_start_ = to > at_ && in_[to - 1] == '\n';
    move_to(to);
  }

  void comment() {
    const std::size_t close = in_.find("#}", at_);
    if (close == std::string_view::npos) fail("a comment is not closed");
    const char sign = close > at_ ? in_[close - 1] : '\0';
    move_to(close + 2);
    after_tag(sign, true);
  }

  void tag(bool is_print) {
    put(is_print ? Token::Kind::print_begin : Token::Kind::block_begin, "");
    const std::string_view close = is_print ? "}}" : "%}";
    std::size_t open_brackets = 0;
    while (true) {
      move_to(std::min(in_.find_first_not_of(kWhiteSpace, at_), in_.size()));
      if (at_ == in_.size()) fail("a tag is not closed");
      const char sign = peek() == '-' || (peek() == '+' && !is_print) ? peek() : '\0';
      const std::size_t skip = sign == '\0' ? 0 : 1;
      if (open_brackets == 0 && in_.substr(at_ + skip).starts_with(close)) {
        put(is_print ? Token::Kind::print_end : Token::Kind::block_end, "");
        move_to(at_ + skip + 2);
        after_tag(sign, !is_print);
        return;
      }
      const char c = peek();
      if (c == '(' || c == '[' || c == '{') ++open_brackets;
      if ((c == ')' || c == ']' || c == '}') && open_brackets > 0) --open_brackets;
      token();
    }
  }

  void token() {
    const char c = peek();
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < in_.size() && (is_name_start(in_[end]) || is_digit(in_[end]))) ++end;
      put(Token::Kind::name, std::string(in_.substr(at_, end - at_)));
      at_ = end;
    } else if (is_digit(c)) {
      number();
    } else if (c == '\'' || c == '"') {
      string(c);
    } else {
      const auto* const symbol =
          std::find_if(kLongSymbols.begin(), kLongSymbols.end(),
                       [this](auto s) { return in_.substr(at_).starts_with(s); });
      if (symbol == kLongSymbols.end() && kSymbols.find(c) == std::string_view::npos) {
        fail("unexpected character '{}'", c);
      }
      const std::size_t size = symbol == kLongSymbols.end() ? 1 : 2;
      put(Token::Kind::symbol, std::string(in_.substr(at_, size)));
      at_ += size;
    }
  }

  void number() {
    std::size_t end = at_;
    while (end < in_.size() && is_digit(in_[end])) ++end;
    const bool is_float = end + 1 < in_.size() && in_[end] == '.' && is_digit(in_[end + 1]);
    if (is_float) {
      ++end;
      while (end < in_.size() && is_digit(in_[end])) ++end;
    }
    Token token{Token::Kind::number, line_, std::string(in_.substr(at_, end - at_)), nullptr};
    const char* const first = token.text.data();
    const char* const last = first + token.text.size();
    std::int64_t whole = 0;
    double fraction = 0;
    const auto result =
        is_float ? std::from_chars(first, last, fraction) : std::from_chars(first, last, whole);
    if (result.ec != std::errc{}) fail("the number {} is too large", token.text);
    if (is_float) {
      token.value = fraction;
    } else {
      token.value = whole;
    }
    tokens_.push_back(std::move(token));
    at_ = end;
  }

  void string(char quote) {
    const int line = line_;
    std::string text;
    std::size_t i = at_ + 1;
    while (i < in_.size() && in_[i] != quote) {
      if (in_[i] != '\\' || i + 1 == in_.size()) {
        text += in_[i++];
        continue;
      }
      const char escaped = in_[i + 1];
      i += 2;
      static constexpr std::string_view kFrom = "ntrfvab\\'\"";
      static constexpr std::string_view kTo = "\n\t\r\f\v\a\b\\'\"";
      if (const std::size_t known = kFrom.find(escaped); known != std::string_view::npos) {
        text += kTo[known];
      } else if (escaped == 'x' || escaped == 'u') {
        const std::size_t digits = escaped == 'x' ? 2 : 4;
        std::uint32_t value = 0;
        const std::string_view hex = in_.substr(i, digits);
        const auto result = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
        if (hex.size() != digits || result.ptr != hex.data() + digits ||
            (value >= 0xD800 && value < 0xE000)) {
          fail("a malformed escape in a string");
        }
        utf8::append(text, value);
        i += digits;
      } else {
        text += '\\';
        text += escaped;
      }
    }
    if (i >= in_.size()) fail("a string is not closed");
    move_to(i + 1);
    tokens_.push_back({Token::Kind::string, line, std::move(text), nullptr});
  }

  std::string source_;
  std::string_view in_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> cut_template(std::string_view source) { return Lexer(source).run(); }

}  // namespace sluice::chat
