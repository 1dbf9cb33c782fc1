// Generated text on its way to a person: shown as soon as it is certain, never half a code point,
// never a part of a stop text.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "harness/model_cache.hpp"
#include "harness/stop_text.hpp"

namespace sluice {

class TextOut {
 public:
  // A model without a tokenizer has no text. `print`: to standard output.
  TextOut(const Model& model, const std::vector<std::string>& stops, bool print);

  // False: a stop text was reached.
  bool take(std::int32_t token);
  void finish();
  bool has_text() const { return decoder_.has_value(); }
  const std::string& text() const { return text_; }  // what was shown

 private:
  void show(const std::string& piece);

  std::optional<StreamDecoder> decoder_;
  StopText stops_;
  bool print_;
  std::string text_;
};

}  // namespace sluice
