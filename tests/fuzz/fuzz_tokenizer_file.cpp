// A tokenizer file: whatever the bytes, it loads or is refused with InputError; one that loads encodes, decodes
// and streams consistently.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "models/tokenizer/tokenizer.hpp"

namespace {

constexpr std::string_view kTexts[] = {
    "", "Hello, world! <s> it's 42\r\n\n  x",
    "na\xC3\xAFve e\xCC\x81 \xE4\xB8\xAD\xE6\x96\x87 \xFF\xC0 \xF0\x9F\x99\x82"};

void use(const sluice::Tokenizer& tokenizer) {
  for (const std::string_view text : kTexts) {
    std::vector<std::int32_t> ids;
    try {
      ids = tokenizer.encode(text, true);
    } catch (const sluice::Error&) {
      continue;  // the file's own pattern may backtrack without end
    }
    sluice::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    if (streamed != tokenizer.decode(ids)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    use(sluice::Tokenizer::parse({reinterpret_cast<const char*>(data), size}, "tokenizer.json"));
  } catch (const sluice::InputError&) {
    // Refused, which is an answer.
  }
  return 0;
}
