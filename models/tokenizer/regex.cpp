#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/tokenizer/regex.hpp"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "core/error.hpp"

namespace sluice {
namespace {

constexpr std::size_t kJitStackBytes = std::size_t{64} << 10;
constexpr std::size_t kJitStackLimitBytes = std::size_t{16} << 20;
// Steps of one search, beside those that a subject's length explains.
constexpr std::size_t kMatchLimit = 10'000'000;
constexpr std::size_t kMatchLimitPerByte = 32;

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

RegexScratch::RegexScratch()
    : match_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kJitStackBytes, kJitStackLimitBytes, nullptr)) {
  if (match_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  // Without a stack, where there is no JIT compiler, PCRE2 interprets.
  if (stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_jit_stack_free(stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(match_);
}

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Regex::Regex(std::string_view pattern) : pattern_(pattern) {
  const std::string translated = translate_pattern(pattern);
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Ruby's syntax ^ and $ are always the ends of a line.
  code_.reset(pcre2_compile(units(translated), translated.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context));
  pcre2_compile_context_free(context);
  if (!code_) {
    throw InputError("the regular expression '{}' is not valid: {}", pattern, message_of(error));
  }
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

bool Regex::search(std::string_view subject, std::size_t from, RegexScratch& scratch,
                   Match& match) const {
  const std::size_t limit = std::max(kMatchLimit, subject.size() * kMatchLimitPerByte);
  pcre2_set_match_limit(scratch.context_,
                        static_cast<std::uint32_t>(std::min<std::size_t>(limit, UINT32_MAX)));
  const int found = pcre2_match(code_.get(), units(subject), subject.size(), from,
                                PCRE2_NO_UTF_CHECK, scratch.match_, scratch.context_);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    throw Error("the tokenizer's regular expression '{}' failed on a text of {} bytes: {}",
                pattern_, subject.size(), message_of(found));
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(scratch.match_);
  match = {offsets[0], offsets[1]};
  return true;
}

}  // namespace sluice
