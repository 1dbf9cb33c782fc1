#include "models/chat/expression_parser.hpp"

#include <algorithm>

namespace sluice::chat {

Expression ExpressionParser::make(Kind kind, std::string text) const {
  Expression result;
  result.kind = kind;
  result.line = peek().line;
  result.text = std::move(text);
  return result;
}

void ExpressionParser::adopt(Expression& parent, Expression child) const {
  parent.height = std::max(parent.height, child.height + 1);
  if (parent.height > kHighest) fail("an expression of more than {} levels", kHighest);
  parent.operands.push_back(std::move(child));
}

Expression ExpressionParser::binary(std::string text, Expression left, Expression right) const {
  Expression result = make(Kind::binary, std::move(text));
  adopt(result, std::move(left));
  adopt(result, std::move(right));
  return result;
}

Expression ExpressionParser::expression() {
  const Level level(*this);
  Expression value = or_expression();
  while (take_name("if")) {
    Expression result = make(Kind::conditional);
    adopt(result, std::move(value));
    adopt(result, or_expression());
    adopt(result, take_name("else") ? expression() : make(Kind::name, "else of a conditional"));
    value = std::move(result);
  }
  return value;
}

Expression ExpressionParser::or_expression() {
  Expression left = and_expression();
  while (take_name("or")) left = binary("or", std::move(left), and_expression());
  return left;
}

Expression ExpressionParser::and_expression() {
  Expression left = not_expression();
  while (take_name("and")) left = binary("and", std::move(left), not_expression());
  return left;
}

Expression ExpressionParser::not_expression() {
  const Level level(*this);
  if (!take_name("not")) return comparison();
  Expression result = make(Kind::unary, "not");
  adopt(result, not_expression());
  return result;
}

std::string ExpressionParser::comparison_operator() {
  for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (take_symbol(symbol)) return symbol;
  }
  if (take_name("in")) return "in";
  if (is_name("not") && tokens_[at_ + 1].kind == Token::Kind::name &&
      tokens_[at_ + 1].text == "in") {
    at_ += 2;
    return "not in";
  }
  return "";
}

Expression ExpressionParser::comparison() {
  Expression left = sum();
  std::string symbol = comparison_operator();
  if (symbol.empty()) return left;
  Expression result = binary(std::move(symbol), std::move(left), sum());
  if (!comparison_operator().empty()) fail("comparisons in a row are not supported");
  return result;
}

Expression ExpressionParser::sum() {
  Expression left = concatenation();
  while (is_symbol("+") || is_symbol("-")) {
    std::string symbol = tokens_[at_++].text;
    left = binary(std::move(symbol), std::move(left), concatenation());
  }
  return left;
}

Expression ExpressionParser::concatenation() {
  Expression left = product();
  while (take_symbol("~")) left = binary("~", std::move(left), product());
  return left;
}

Expression ExpressionParser::product() {
  Expression left = unary();
  while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
    std::string symbol = tokens_[at_++].text;
    left = binary(std::move(symbol), std::move(left), unary());
  }
  return left;
}

Expression ExpressionParser::unary(bool with_filter) {
  const Level level(*this);
  Expression result;
  if (is_symbol("-") || is_symbol("+")) {
    result = make(Kind::unary, tokens_[at_++].text);
    adopt(result, unary(false));
  } else {
    result = postfix(primary());
  }
  return with_filter ? filters(std::move(result)) : result;
}

Expression ExpressionParser::primary() {
  const Token token = peek();
  switch (token.kind) {
    case Token::Kind::string: {
      Expression result = make(Kind::literal);
      std::string text;
      while (peek().kind == Token::Kind::string) text += tokens_[at_++].text;
      result.value = std::move(text);
      return result;
    }
    case Token::Kind::number: {
      Expression result = make(Kind::literal);
      result.value = token.value;
      ++at_;
      return result;
    }
    case Token::Kind::name: return name();
    default: return bracketed();
  }
}

Expression ExpressionParser::name() {
  Expression result = make(Kind::literal);
  const std::string word = expect_name();
  if (word == "true" || word == "True") {
    result.value = true;
  } else if (word == "false" || word == "False") {
    result.value = false;
  } else if (word != "none" && word != "None") {
    result.kind = Kind::name;
    result.text = word;
  }
  return result;
}

Expression ExpressionParser::bracketed() {
  if (take_symbol("(")) {
    Expression result = expression();
    if (is_symbol(",")) fail("tuples are not supported");
    expect_symbol(")");
    return result;
  }
  if (take_symbol("[")) {
    Expression result = make(Kind::list);
    while (!take_symbol("]")) {
      adopt(result, expression());
      if (!is_symbol("]")) expect_symbol(",");
    }
    return result;
  }
  if (take_symbol("{")) {
    Expression result = make(Kind::dict);
    while (!take_symbol("}")) {
      adopt(result, expression());
      expect_symbol(":");
      adopt(result, expression());
      if (!is_symbol("}")) expect_symbol(",");
    }
    return result;
  }
  fail("a value is missing before '{}'", peek().text);
}

Expression ExpressionParser::postfix(Expression value) {
  while (true) {
    if (take_symbol(".")) {
      Expression result = make(Kind::attribute, expect_name());
      adopt(result, std::move(value));
      value = std::move(result);
    } else if (take_symbol("[")) {
      value = subscript(std::move(value));
    } else if (is_symbol("(")) {
      Expression result = make(Kind::call);
      adopt(result, std::move(value));
      arguments(result);
      value = std::move(result);
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::subscript(Expression value) {
  Expression result = make(Kind::slice);
  adopt(result, std::move(value));
  const auto bound = [this, &result] {
    adopt(result, is_symbol(":") || is_symbol("]") ? make(Kind::literal) : expression());
  };
  bound();
  if (!is_symbol(":")) {
    if (is_symbol("]") && result.operands.back().kind == Kind::literal &&
        result.operands.back().value.is_null()) {
      fail("an index is missing");
    }
    result.kind = Kind::item;
  } else {
    while (take_symbol(":")) bound();
    if (result.operands.size() > 4) fail("a slice with more than three parts");
    if (result.operands.size() == 3) adopt(result, make(Kind::literal));
  }
  expect_symbol("]");
  return result;
}

void ExpressionParser::arguments(Expression& call) {
  expect_symbol("(");
  while (!take_symbol(")")) {
    if (peek().kind == Token::Kind::name && tokens_[at_ + 1].kind == Token::Kind::symbol &&
        tokens_[at_ + 1].text == "=") {
      call.names.push_back(expect_name());
      ++at_;
      adopt(call, expression());
    } else {
      if (!call.names.empty()) fail("an argument without a name behind one with a name");
      adopt(call, expression());
    }
    if (!is_symbol(")")) expect_symbol(",");
  }
}

Expression ExpressionParser::filters(Expression value) {
  while (true) {
    if (take_symbol("|")) {
      Expression result = make(Kind::filter, expect_name());
      adopt(result, std::move(value));
      if (is_symbol("(")) arguments(result);
      value = std::move(result);
    } else if (take_name("is")) {
      const bool negated = take_name("not");
      Expression result = make(Kind::test, expect_name());
      adopt(result, std::move(value));
      value = std::move(result);
      if (negated) {
        Expression inverse = make(Kind::unary, "not");
        adopt(inverse, std::move(value));
        value = std::move(inverse);
      }
    } else {
      return value;
    }
  }
}

}  // namespace sluice::chat
