#include <string>
#include <thread>
#include <vector>

#include "models/tokenizer/tokenizer.hpp"
#include "tests/catch.hpp"
#include "tests/tokenizer/files.hpp"

using namespace sluice;

TEST_CASE("one tokenizer serves several threads") {
  const std::string text = "The quick brown fox, it's 42 \xE4\xB8\xAD\xE6\x96\x87 <|im_end|>";
  const Tokenizer tokenizer = Tokenizer::load(test::qwen3_directory());
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&count, &tokenizer, &text, &ids] {
      for (int i = 0; i < 50; ++i) count += static_cast<int>(tokenizer.encode(text) != ids);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}
