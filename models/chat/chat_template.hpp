// Runs a chat template: the part of Jinja in template_ast.hpp, with the settings of Hugging Face `transformers`
// (trim_blocks, lstrip_blocks, its `tojson`, `raise_exception`). `strftime_now` is not defined, so that the same
// messages make the same prompt every day: templates that ask for it have a fixed date instead.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/chat/template_ast.hpp"
#include "models/chat/template_value.hpp"

namespace sluice::chat {

class ChatTemplate {
 public:
  // Throws InputError "line N: ..." where the template is broken or uses what is not supported.
  explicit ChatTemplate(std::string_view source) : body_(parse_template(source)) {}

  // Throws InputError "line N: ..." where a variable is not what the template needs, and where the template
  // itself refuses.
  std::string render(Value::Variables variables) const;

 private:
  std::vector<Statement> body_;
};

}  // namespace sluice::chat
