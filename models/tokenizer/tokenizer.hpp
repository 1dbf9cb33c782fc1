// Text to token ids and back, as the Hugging Face library `tokenizers` does it, from its file tokenizer.json.
// Supported: byte-level BPE (GPT-2, Qwen, Llama 3, SmolLM2 and their kin). Whatever of a file is not supported
// is refused by name. `truncation` and `padding` of a file are left alone, as in `transformers`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Constant once loaded; any number of threads may use one.
class Tokenizer {
 public:
  // Reads a tokenizer.json, or the one in a directory. Throws InputError naming file and place.
  static Tokenizer load(const std::filesystem::path& file_or_directory);

  // The same from the text of such a file; `file` is what errors name.
  static Tokenizer parse(std::string_view json, const std::filesystem::path& file);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // `text` may be any bytes: what is not UTF-8 counts as U+FFFD, one per maximal invalid subpart. Contents of
  // added tokens become these tokens. `add_special` adds what the file's post-processor adds (a bos token).
  std::vector<std::int32_t> encode(std::string_view text, bool add_special = false) const;

  // Valid UTF-8: bytes that are not become U+FFFD, as above. `skip_special` leaves special tokens out. An id
  // without a token (models often have more rows than the tokenizer has tokens) decodes to nothing, as in the
  // reference; a negative one throws InputError.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // One beyond the largest id.
  std::size_t vocab_size() const;

  // A token as the file spells it, in the alphabet of byte_alphabet.hpp unless it is an added one.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::optional<std::string> token_of(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// Decodes one id at a time. The pieces never hold half a code point, and together are what decode() makes of
// all ids.
class StreamDecoder {
 public:
  // Refers to `tokenizer`, which must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that the ids so far make certain and no call returned before; often empty.
  std::string push(std::int32_t id);

  // What was held back: U+FFFD where the ids ended within a code point. The decoder can be used anew.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string held_;  // at most 3 bytes between calls
};

}  // namespace sluice
