#include "harness/commands/text_out.hpp"

#include <cstdio>

namespace sluice {

TextOut::TextOut(const Model& model, const std::vector<std::string>& stops, bool print)
    : stops_(stops), print_(print) {
  if (model.tokenizer) decoder_.emplace(*model.tokenizer, true);
}

bool TextOut::take(std::int32_t token) {
  if (decoder_) show(stops_.push(decoder_->push(token)));
  return !stops_.stopped();
}

void TextOut::finish() {
  if (!decoder_) return;
  show(stops_.push(decoder_->finish()));
  if (!stops_.stopped()) show(stops_.finish());
}

void TextOut::show(const std::string& piece) {
  text_ += piece;
  if (!print_) return;
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
}

}  // namespace sluice
