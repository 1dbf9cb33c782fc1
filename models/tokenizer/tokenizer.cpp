#include "models/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/json_node.hpp"
#include "models/model_files.hpp"
#include "models/tokenizer/added_tokens.hpp"
#include "models/tokenizer/bpe.hpp"
#include "models/tokenizer/byte_alphabet.hpp"
#include "models/tokenizer/post_processor.hpp"
#include "models/tokenizer/pre_tokenizer.hpp"
#include "models/tokenizer/sequence_depth.hpp"
#include "models/tokenizer/unicode.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice {
namespace {

void read_normalizer(const JsonNode& section, int depth, std::vector<unicode::Form>& forms) {
  static constexpr std::array<std::pair<std::string_view, unicode::Form>, 4> kForms = {{
      {"NFC", unicode::Form::nfc},
      {"NFD", unicode::Form::nfd},
      {"NFKC", unicode::Form::nfkc},
      {"NFKD", unicode::Form::nfkd},
  }};
  const JsonNode type = section.at("type");
  for (const auto& [name, form] : kForms) {
    if (type.string() == name) {
      forms.push_back(form);
      return;
    }
  }
  if (type.string() != "Sequence") {
    type.fail("'{}' is not supported: NFC, NFD, NFKC, NFKD and Sequence are", type.string());
  }
  check_depth(section, depth);
  const JsonNode parts = section.at("normalizers");
  for (std::size_t i = 0; i < parts.size(); ++i) read_normalizer(parts[i], depth + 1, forms);
}

// Only ByteLevel decodes byte-level tokens; its switches change nothing in a decoder. Fuse joins what ByteLevel
// has joined already.
void check_decoder(const JsonNode& section, int depth, bool& has_byte_level) {
  const JsonNode type = section.at("type");
  if (type.string() == "ByteLevel" && !has_byte_level) {
    has_byte_level = true;
  } else if (type.string() == "Sequence") {
    check_depth(section, depth);
    const JsonNode parts = section.at("decoders");
    for (std::size_t i = 0; i < parts.size(); ++i)
      check_decoder(parts[i], depth + 1, has_byte_level);
  } else if (type.string() != "Fuse" || !has_byte_level) {
    type.fail("'{}' is not supported here: ByteLevel is, alone or first in a Sequence",
              type.string());
  }
}

const nlohmann::json kNull;

JsonNode section_or_null(const JsonNode& root, std::string_view key) {
  const auto section = root.find(key);
  return section ? *section : JsonNode(kNull, root.file());
}

}  // namespace

struct Tokenizer::State {
  std::vector<unicode::Form> normalizer;
  AddedTokenMatcher raw_tokens;
  AddedTokenMatcher normalized_tokens;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  PostProcessor post_processor;

  std::vector<AddedToken> added;
  std::unordered_map<TokenId, std::size_t> added_by_id;
  std::size_t id_limit = 0;

  // The bytes of each id, one behind another; an id without a token has none.
  std::string bytes;
  std::vector<std::uint32_t> byte_offsets;
  std::vector<bool> special;

  void load_added(const JsonNode& root);
  void spell_tokens(const JsonNode& root);
  std::string normalize(std::string_view text) const;
  std::string_view bytes_of(TokenId id, bool skip_special) const;
};

void Tokenizer::State::load_added(const JsonNode& root) {
  if (const auto section = root.find("added_tokens"))
    added = load_added_tokens(*section, bpe.vocabulary());
  // The reference looks for special tokens first, which counts where two are the same once normalised.
  for (const bool special_ones : {true, false}) {
    for (const AddedToken& token : added) {
      if (token.special != special_ones) continue;
      if (!token.normalized) {
        raw_tokens.add(token, token.content);
      } else if (const std::string content = normalize(token.content); !content.empty()) {
        normalized_tokens.add(token, content);
      }
    }
  }
  for (std::size_t i = 0; i < added.size(); ++i) added_by_id.emplace(added[i].id, i);
}

void Tokenizer::State::spell_tokens(const JsonNode& root) {
  id_limit = bpe.vocabulary().id_limit();
  for (const AddedToken& token : added) {
    id_limit = std::max(id_limit, static_cast<std::size_t>(token.id) + 1);
  }
  special.assign(id_limit, false);
  for (const AddedToken& token : added) special[static_cast<std::size_t>(token.id)] = token.special;
  byte_offsets.reserve(id_limit + 1);
  byte_offsets.push_back(0);
  for (std::size_t row = 0; row < id_limit; ++row) {
    const auto id = static_cast<TokenId>(row);
    const auto entry = added_by_id.find(id);
    std::string token;
    if (entry != added_by_id.end()) {
      // The reference keeps a normalised token as it is looked for.
      const AddedToken& of = added[entry->second];
      token = of.normalized ? normalize(of.content) : of.content;
    } else if (const std::string* const known = bpe.vocabulary().token_of(id)) {
      token = *known;
    }
    bytes += bytes_of_token(token).value_or(token);
    if (bytes.size() > UINT32_MAX) root.fail("the tokens have more than {} bytes", UINT32_MAX);
    byte_offsets.push_back(static_cast<std::uint32_t>(bytes.size()));
  }
}

std::string Tokenizer::State::normalize(std::string_view text) const {
  std::string result(text);
  for (const unicode::Form form : normalizer) {
    if (!unicode::is_surely_normalized(result, form)) result = unicode::normalize(result, form);
  }
  return result;
}

std::string_view Tokenizer::State::bytes_of(TokenId id, bool skip_special) const {
  if (id < 0) throw InputError("token id {}: ids are from 0 to {}", id, id_limit - 1);
  const auto row = static_cast<std::size_t>(id);
  if (row >= id_limit || (skip_special && special[row])) return {};
  return std::string_view(bytes).substr(byte_offsets[row],
                                        byte_offsets[row + 1] - byte_offsets[row]);
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& file_or_directory) {
  const std::filesystem::path file =
      directory_exists(file_or_directory) ? file_or_directory / kTokenizerName : file_or_directory;
  return parse(read_file(file, kLargestTokenizer), file);
}

Tokenizer Tokenizer::parse(std::string_view text, const std::filesystem::path& file) {
  const nlohmann::json json = parse_json(text, file.string());
  const JsonNode root(json, file.string());
  root.expect_object();

  auto state = std::make_unique<State>();
  if (const auto section = root.find("normalizer")) read_normalizer(*section, 0, state->normalizer);
  state->pre_tokenizer = PreTokenizer::load(section_or_null(root, "pre_tokenizer"));
  bool has_byte_level = false;
  if (const auto section = root.find("decoder")) check_decoder(*section, 0, has_byte_level);
  if (!has_byte_level) root.fail("the key 'decoder' must name ByteLevel");
  state->bpe = Bpe::load(root.at("model"));
  state->post_processor = PostProcessor::load(section_or_null(root, "post_processor"));
  state->load_added(root);
  state->spell_tokens(root);
  return Tokenizer(std::move(state));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  const State& state = *state_;
  std::string replaced;
  if (utf8::valid_prefix(text) != text.size()) {
    replaced = utf8::replace_invalid(text);
    text = replaced;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 4);
  if (add_special) ids = state.post_processor.before;

  RegexScratch regex_scratch;
  Bpe::Scratch bpe_scratch;
  std::deque<std::string> normalized;  // BPE remembers pieces by where they are
  const auto on_token = [&ids](TokenId id) { ids.push_back(id); };
  const PreTokenizer::Sink on_piece = [&](std::string_view piece, PieceOrigin origin) {
    state.bpe.encode(piece, origin == PieceOrigin::text, bpe_scratch, ids);
  };
  const auto on_normalized = [&](std::string_view stretch) {
    state.pre_tokenizer.split(stretch, regex_scratch, on_piece);
  };
  const auto on_raw = [&](std::string_view stretch) {
    if (!state.normalizer.empty()) {
      normalized.push_back(state.normalize(stretch));
      stretch = normalized.back();
    }
    if (state.normalized_tokens.empty()) {
      on_normalized(stretch);
    } else {
      state.normalized_tokens.split(stretch, on_normalized, on_token);
    }
  };
  state.raw_tokens.split(text, on_raw, on_token);
  if (add_special) {
    ids.insert(ids.end(), state.post_processor.behind.begin(), state.post_processor.behind.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) bytes += state_->bytes_of(id, skip_special);
  return utf8::replace_invalid(bytes);
}

std::size_t Tokenizer::vocab_size() const { return state_->id_limit; }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : state_->added) {
    if (added.content == token) return added.id;
  }
  return state_->bpe.vocabulary().id_of(token);
}

std::optional<std::string> Tokenizer::token_of(std::int32_t id) const {
  const auto added = state_->added_by_id.find(id);
  if (added != state_->added_by_id.end()) return state_->added[added->second].content;
  const std::string* const token = state_->bpe.vocabulary().token_of(id);
  return token == nullptr ? std::nullopt : std::optional(*token);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && static_cast<std::size_t>(id) < state_->id_limit &&
         state_->special[static_cast<std::size_t>(id)];
}

std::string StreamDecoder::push(std::int32_t id) {
  held_ += tokenizer_.state_->bytes_of(id, skip_special_);
  std::string text;
  held_.erase(0, utf8::append_replacing(text, held_));
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = utf8::replace_invalid(held_);
  held_.clear();
  return text;
}

}  // namespace sluice
