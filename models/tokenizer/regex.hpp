// A regular expression of a tokenizer file. The reference matches with Oniguruma (Ruby's syntax, UTF-8); here
// the pattern is translated to PCRE2, and whatever the two would read differently is refused.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace sluice {

// The PCRE2 pattern that means what `pattern` means to the reference. Throws InputError naming the construct.
std::string translate_pattern(std::string_view pattern);

// `text` as a pattern that matches just it.
std::string escape_pattern(std::string_view text);

// What matching needs beside the pattern. One per thread; any number of expressions may use it.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* match_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
};

class Regex {
 public:
  // `pattern` in the syntax of the reference. Throws InputError (without a file: the caller knows it).
  explicit Regex(std::string_view pattern);

  struct Match {
    std::size_t begin;
    std::size_t end;
  };

  // The first match at or after `from`; false where there is none. `subject` is valid UTF-8, see
  // unicode::with_stand_ins. Throws Error where the pattern backtracks without end.
  bool search(std::string_view subject, std::size_t from, RegexScratch& scratch,
              Match& match) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::string pattern_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace sluice
