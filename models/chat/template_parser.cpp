#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/expression_parser.hpp"
#include "models/chat/template_ast.hpp"

namespace sluice::chat {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  std::vector<Statement> run() {
    std::vector<Statement> body = statements({});
    if (peek().kind != Token::Kind::end) fail("'{}' has nothing to end", tokens_[at_ + 1].text);
    return body;
  }

 private:
  void expect_block_end() {
    if (peek().kind != Token::Kind::block_end) fail("unexpected '{}' in a block", peek().text);
    ++at_;
  }

  // Up to the end or a block that begins with one of `stops`, which is not consumed.
  std::vector<Statement> statements(std::initializer_list<std::string_view> stops) {
    const Level level(*this);
    std::vector<Statement> body;
    while (peek().kind != Token::Kind::end) {
      if (peek().kind == Token::Kind::text) {
        Statement& text = add(body, Statement::Kind::text);
        text.text = peek().text;
        ++at_;
      } else if (peek().kind == Token::Kind::print_begin) {
        Statement& print = add(body, Statement::Kind::print);
        ++at_;
        print.expression = expression();
        if (peek().kind != Token::Kind::print_end)
          fail("unexpected '{}' in an expression", peek().text);
        ++at_;
      } else {
        const std::string& word = tokens_[at_ + 1].text;
        if (std::find(stops.begin(), stops.end(), word) != stops.end()) return body;
        if (word.starts_with("end") || word == "else" || word == "elif") return body;
        block(body);
      }
    }
    if (stops.size() > 0) fail("a block is not closed: '{}' is missing", *(stops.end() - 1));
    return body;
  }

  Statement& add(std::vector<Statement>& body, Statement::Kind kind) {
    body.emplace_back();
    body.back().kind = kind;
    body.back().line = peek().line;
    return body.back();
  }

  void block(std::vector<Statement>& body) {
    ++at_;
    if (take_name("if")) {
      if_block(add(body, Statement::Kind::if_));
    } else if (take_name("for")) {
      for_block(add(body, Statement::Kind::for_));
    } else if (take_name("set")) {
      set_block(add(body, Statement::Kind::set));
    } else if (take_name("break")) {
      add(body, Statement::Kind::break_);
      in_loop();
    } else if (take_name("continue")) {
      add(body, Statement::Kind::continue_);
      in_loop();
    } else if (take_name("generation")) {
      // Marks the assistant's words for training; they are printed all the same.
      expect_block_end();
      for (Statement& inner : statements({"endgeneration"})) body.push_back(std::move(inner));
      end_block("endgeneration");
    } else {
      fail("the block '{}' is not supported: if, for, set, break, continue and generation are",
           peek().text);
    }
  }

  void in_loop() {
    if (loops_ == 0) fail("'break' or 'continue' outside of a loop");
    expect_block_end();
  }

  void end_block(std::string_view word) {
    if (peek().kind == Token::Kind::block_begin) ++at_;
    if (!take_name(word)) fail("'{}' is missing before '{}'", word, peek().text);
    expect_block_end();
  }

  void if_block(Statement& statement) {
    Expression condition = expression();
    expect_block_end();
    statement.branches.push_back({std::move(condition), statements({"elif", "else", "endif"})});
    while (tokens_[at_ + 1].text == "elif") {
      at_ += 2;
      Expression next = expression();
      expect_block_end();
      statement.branches.push_back({std::move(next), statements({"elif", "else", "endif"})});
    }
    else_branch(statement, {"endif"});
    end_block("endif");
  }

  void else_branch(Statement& statement, std::initializer_list<std::string_view> stops) {
    if (peek().kind != Token::Kind::block_begin || tokens_[at_ + 1].text != "else") return;
    at_ += 2;
    expect_block_end();
    statement.branches.push_back({std::nullopt, statements(stops)});
  }

  void for_block(Statement& statement) {
    do {
      statement.targets.push_back(expect_name());
    } while (take_symbol(","));
    if (!take_name("in")) fail("'in' is missing");
    statement.expression = or_expression();
    if (take_name("if")) statement.filter = expression();
    if (is_name("recursive")) fail("recursive loops are not supported");
    expect_block_end();
    ++loops_;
    statement.branches.push_back({std::nullopt, statements({"else", "endfor"})});
    --loops_;
    else_branch(statement, {"endfor"});
    end_block("endfor");
  }

  void set_block(Statement& statement) {
    statement.targets.push_back(expect_name());
    if (take_symbol(".")) statement.text = expect_name();
    if (take_symbol("=")) {
      statement.expression = expression();
      expect_block_end();
      return;
    }
    statement.kind = Statement::Kind::set_block;
    expect_block_end();
    statement.branches.push_back({std::nullopt, statements({"endset"})});
    end_block("endset");
  }

  int loops_ = 0;
};

}  // namespace

std::vector<Statement> parse_template(std::string_view source) {
  return Parser(cut_template(source)).run();
}

}  // namespace sluice::chat
