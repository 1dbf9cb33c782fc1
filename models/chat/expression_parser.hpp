// Parses the expressions of a chat template; template_parser.cpp parses what is around them.
#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "models/chat/template_ast.hpp"
#include "models/chat/template_lexer.hpp"

namespace sluice::chat {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Parse what begins at the next token, and end behind it.
  Expression expression();
  Expression or_expression();  // without `a if b`

  // Counts how deep the parser is in itself.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kDeepest) parser_.fail("nested too deep");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& peek() const { return tokens_[at_]; }
  bool is(Token::Kind kind, std::string_view text) const {
    return peek().kind == kind && peek().text == text;
  }
  bool is_symbol(std::string_view text) const { return is(Token::Kind::symbol, text); }
  bool is_name(std::string_view text) const { return is(Token::Kind::name, text); }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InputError("line {}: {}", peek().line, fmt::format(format, std::forward<Args>(args)...));
  }

  bool take_symbol(std::string_view text) {
    if (!is_symbol(text)) return false;
    ++at_;
    return true;
  }
  bool take_name(std::string_view text) {
    if (!is_name(text)) return false;
    ++at_;
    return true;
  }
  void expect_symbol(std::string_view text) {
    if (!take_symbol(text)) fail("'{}' is missing before '{}'", text, peek().text);
  }
  std::string expect_name() {
    if (peek().kind != Token::Kind::name) fail("a name is missing");
    return tokens_[at_++].text;
  }

  std::vector<Token> tokens_;  // ends with Kind::end
  std::size_t at_ = 0;

 private:
  using Kind = Expression::Kind;
  static constexpr int kDeepest = 100;  // of brackets and blocks within each other
  static constexpr int kHighest = 400;  // of the tree of one expression

  Expression make(Kind kind, std::string text = "") const;
  void adopt(Expression& parent, Expression child) const;
  Expression binary(std::string text, Expression left, Expression right) const;
  Expression and_expression();
  Expression not_expression();
  std::string comparison_operator();
  Expression comparison();
  Expression sum();
  Expression concatenation();
  Expression product();
  Expression unary(bool with_filter = true);
  Expression primary();
  Expression name();
  Expression bracketed();
  Expression postfix(Expression value);
  Expression subscript(Expression value);
  void arguments(Expression& call);
  Expression filters(Expression value);

  int depth_ = 0;
};

}  // namespace sluice::chat
