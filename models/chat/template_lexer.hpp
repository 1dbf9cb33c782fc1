// Cuts a chat template into text and the tokens within its tags, with the white space rules that the reference
// sets (trim_blocks and lstrip_blocks).
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

struct Token {
  enum class Kind {
    text,         // outside of tags
    print_begin,  // {{
    print_end,
    block_begin,  // {%
    block_end,
    name,
    string,  // text is what it stands for
    number,  // value
    symbol,  // text
    end,
  };
  Kind kind;
  int line;
  std::string text;
  nlohmann::ordered_json value;
};

// Ends with Kind::end. Throws InputError "line N: ...".
std::vector<Token> cut_template(std::string_view source);

}  // namespace sluice::chat
