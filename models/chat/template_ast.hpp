// A chat template as parsed: the part of Jinja that chat templates are written in.
#pragma once
#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

struct Expression {
  enum class Kind {
    literal,    // value
    name,       // text
    list,       // operands
    dict,       // operands: key, value, key, value ...
    attribute,  // operands[0] . text
    item,       // operands[0] [ operands[1] ]
    slice,      // operands[0] [ operands[1] : operands[2] : operands[3] ], absent: a literal null
    call,       // operands[0] ( the others, named )
    filter,     // operands[0] | text ( the others, named )
    test,       // operands[0] is text
    unary,      // text operands[0]: not - +
    binary,  // operands[0] text operands[1]: and or + - * / // % ~ in, "not in" and the comparisons
    // operands[0] if operands[1] else operands[2], an absent else is a name that is not defined
    conditional,
  };
  Kind kind = Kind::literal;
  int line = 0;
  int height = 1;  // of the tree below, bounded by the parser
  std::string text;
  nlohmann::ordered_json value;
  std::vector<Expression> operands;
  // Of a call's or filter's last operands: the arguments with a name.
  std::vector<std::string> names;
};

struct Statement {
  enum class Kind { text, print, if_, for_, set, set_block, break_, continue_ };
  struct Branch {
    std::optional<Expression> condition;  // none: else
    std::vector<Statement> body;
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string text;                  // text; the attribute of set's target, where it has one
  std::vector<std::string> targets;  // of for and set
  std::optional<Expression> expression;
  std::optional<Expression> filter;  // for x in y if filter
  // Of if; of for: the body, then perhaps what runs where nothing was looped over.
  std::vector<Branch> branches;
};

// Throws InputError "line N: ..." where the template is broken or uses what is not supported.
std::vector<Statement> parse_template(std::string_view source);

}  // namespace sluice::chat
