#include "models/tokenizer/bpe.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "core/error.hpp"
#include "models/tokenizer/byte_alphabet.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr TokenId kNoToken = -1;
constexpr std::uint64_t kNoPair = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kRememberedBytes = 48;  // longer pieces hardly come twice
constexpr std::size_t kRememberedPieces = 1 << 17;

std::uint64_t pair_of(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t hash_of(std::uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(pair ^ pair >> 29);
}

}  // namespace

Bpe Bpe::load(const JsonNode& model) {
  if (const auto type = model.find("type"); type && type->string() != "BPE") {
    type->fail("'{}' is not supported: only BPE is", type->string());
  }
  if (const auto dropout = model.find("dropout")) {
    if (!dropout->raw().is_number() || dropout->raw().get<double>() != 0.0) {
      dropout->fail("merging at random is not supported: null is");
    }
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_or(key, "").empty()) model.at(key).fail("is not supported in byte-level BPE");
  }
  if (model.boolean_or("byte_fallback", false)) {
    model.at("byte_fallback").fail("is not supported: byte-level BPE has no use for it");
  }
  Bpe bpe;
  bpe.ignore_merges_ = model.boolean_or("ignore_merges", false);
  bpe.fuse_unknown_ = model.boolean_or("fuse_unk", false);
  bpe.read_vocabulary(model.at("vocab"));
  bpe.read_unknown(model);
  bpe.read_merges(model.at("merges"));
  return bpe;
}

void Bpe::read_vocabulary(const JsonNode& vocab) {
  vocab.expect_object();
  vocabulary_.reserve(vocab.raw().size());
  byte_ids_.fill(kNoToken);
  for (const auto& [token, id] : vocab.raw().items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kLargestTokenId) {
      vocab.fail("the id of the token '{}' must be an integer from 0 to {}, is {}", token,
                 kLargestTokenId, id.is_number() ? id.dump() : id.type_name());
    }
    const auto number = id.get<TokenId>();
    if (!vocabulary_.add(token, number)) {
      vocab.fail("the tokens '{}' and '{}' have the same id {}", *vocabulary_.token_of(number),
                 token, number);
    }
    if (auto bytes = bytes_of_token(token)) {
      if (bytes->size() == 1) byte_ids_[static_cast<std::uint8_t>(bytes->front())] = number;
      if (ignore_merges_) whole_.emplace(std::move(*bytes), number);
    }
  }
}

void Bpe::read_unknown(const JsonNode& model) {
  const auto token = model.find("unk_token");
  if (!token) return;
  unknown_ = vocabulary_.id_of(token->string());
  const bool is_needed = std::find(byte_ids_.begin(), byte_ids_.end(), kNoToken) != byte_ids_.end();
  if (!unknown_ && is_needed)
    token->fail("the token '{}' is not in the vocabulary", token->string());
}

void Bpe::read_merges(const JsonNode& merges) {
  const std::size_t count = merges.size();
  if (count >= std::numeric_limits<std::uint32_t>::max() / 2)
    merges.fail("too many merges: {}", count);
  merges_.assign(std::bit_ceil(count * 2 + 2), Merge{kNoPair, 0, kNoToken});
  std::uint32_t rank = 0;
  std::string joined;
  for (std::size_t i = 0; i < count; ++i) {
    const nlohmann::json& merge = merges.raw()[i];
    std::string_view left;
    std::string_view right;
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;  // the first line of an old merges.txt
      const std::size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        merges[i].fail("'{}' must be two tokens with one space between", text);
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      merges[i].fail("must be \"left right\" or [\"left\", \"right\"]");
    }
    joined.assign(left).append(right);
    const auto id = [&](std::string_view token) {
      const auto found = vocabulary_.id_of(token);
      if (!found) merges[i].fail("the token '{}' is not in the vocabulary", token);
      return *found;
    };
    const TokenId left_id = id(left);
    const TokenId right_id = id(right);
    insert_merge(left_id, right_id, rank++, id(joined));
  }
}

void Bpe::insert_merge(TokenId left, TokenId right, std::uint32_t rank, TokenId merged) {
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = merges_.size() - 1;
  std::size_t at = hash_of(pair) & mask;
  while (merges_[at].pair != kNoPair && merges_[at].pair != pair) at = (at + 1) & mask;
  merges_[at] = {pair, rank, merged};
}

const Bpe::Merge* Bpe::find_merge(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = merges_.size() - 1;
  std::size_t at = hash_of(pair) & mask;
  while (merges_[at].pair != pair) {
    if (merges_[at].pair == kNoPair) return nullptr;
    at = (at + 1) & mask;
  }
  return &merges_[at];
}

void Bpe::encode(std::string_view piece, bool remember, Scratch& scratch,
                 std::vector<TokenId>& ids) const {
  if (piece.size() == 1) {
    const TokenId id = byte_ids_[static_cast<std::uint8_t>(piece.front())];
    if (id != kNoToken || unknown_) ids.push_back(id != kNoToken ? id : *unknown_);
    return;
  }
  if (ignore_merges_) {
    const auto whole = whole_.find(piece);
    if (whole != whole_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  const bool is_short = piece.size() <= kRememberedBytes;
  if (is_short) {
    const auto known = scratch.known_.find(piece);
    if (known != scratch.known_.end()) {
      const auto [first, count] = known->second;
      for (std::uint32_t i = 0; i < count; ++i) ids.push_back(TokenId{ids[first + i]});
      return;
    }
  }
  const std::size_t first = ids.size();
  split_bytes(piece, scratch);
  merge_symbols(scratch);
  for (std::int32_t i = scratch.symbols_.empty() ? -1 : 0; i >= 0;) {
    const Scratch::Symbol& symbol = scratch.symbols_[static_cast<std::size_t>(i)];
    ids.push_back(symbol.id);
    i = symbol.next;
  }
  if (is_short && remember && scratch.known_.size() < kRememberedPieces &&
      ids.size() < UINT32_MAX) {
    scratch.known_.emplace(piece, std::pair{static_cast<std::uint32_t>(first),
                                            static_cast<std::uint32_t>(ids.size() - first)});
  }
}

// One symbol per byte. A byte without a token is the unknown token, or nothing where there is none; a run of
// them is one unknown token where the file fuses them.
void Bpe::split_bytes(std::string_view piece, Scratch& scratch) const {
  if (piece.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw InputError("a text without any place to cut it has {} bytes: at most {} can be tokenised",
                     piece.size(), std::numeric_limits<std::int32_t>::max());
  }
  auto& symbols = scratch.symbols_;
  symbols.clear();
  bool after_unknown = false;
  for (const char byte : piece) {
    TokenId id = byte_ids_[static_cast<std::uint8_t>(byte)];
    const bool is_unknown = id == kNoToken;
    if (is_unknown) {
      if (!unknown_ || (after_unknown && fuse_unknown_)) continue;
      id = *unknown_;
    }
    after_unknown = is_unknown;
    const auto position = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, position - 1, position + 1, false});
  }
  if (!symbols.empty()) symbols.back().next = kNoToken;
}

void Bpe::push_candidate(std::size_t position, Scratch& scratch) const {
  const auto& symbols = scratch.symbols_;
  const Scratch::Symbol& left = symbols[position];
  const Merge* const merge = find_merge(left.id, symbols[static_cast<std::size_t>(left.next)].id);
  if (merge == nullptr) return;
  scratch.heap_.push_back({merge->rank, static_cast<std::uint32_t>(position), merge->merged});
}

void Bpe::merge_symbols(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  heap.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) push_candidate(i, scratch);
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  const auto offer = [&](std::int32_t position) {
    const std::size_t before = heap.size();
    push_candidate(static_cast<std::size_t>(position), scratch);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.position];
    if (left.merged_away || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    // A neighbour may have been merged since the candidate was found.
    const Merge* const merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->merged != best.merged) continue;
    left.id = best.merged;
    left.next = right.next;
    right.merged_away = true;
    if (left.next >= 0) {
      symbols[static_cast<std::size_t>(left.next)].previous =
          static_cast<std::int32_t>(best.position);
      offer(static_cast<std::int32_t>(best.position));
    }
    if (left.previous >= 0) offer(left.previous);
  }
}

}  // namespace sluice
