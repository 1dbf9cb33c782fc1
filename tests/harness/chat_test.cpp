// A conversation on standard input, against the same turns put together one by one: `tokenize
// --chat` for the ids that the history makes, `generate` for the answer to them.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/tokenizer/byte_alphabet.hpp"
#include "models/tokenizer/utf8.hpp"
#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Finished;
using test::run_sluice;
using test::ScratchDir;

constexpr const char* kTemplate =
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

// The tiny model with a vocabulary of single bytes and three words of the chat template.
class ChatModel {
 public:
  ChatModel() {
    for (const auto& entry : fs::directory_iterator(SLUICE_TEST_DATA "/hf/qwen3-tiny"))
      fs::copy(entry.path(), dir_.path() / entry.path().filename());
    Json vocab, added = Json::array();
    for (int byte = 0; byte < 256; ++byte) {
      std::string token;
      utf8::append(token, character_of_byte(static_cast<std::uint8_t>(byte)));
      vocab[token] = byte;
    }
    for (const char* role : {"<system>", "<user>", "<assistant>"})
      added.push_back({{"id", 256 + added.size()}, {"content", role}, {"special", true}});
    const Json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", false},
                             {"use_regex", false}};
    dir_.write("tokenizer.json",
               Json{{"normalizer", nullptr},
                    {"pre_tokenizer", byte_level},
                    {"decoder", byte_level},
                    {"added_tokens", added},
                    {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}
                   .dump());
    dir_.write("tokenizer_config.json", Json{{"chat_template", kTemplate}}.dump());
  }
  std::string path() const { return dir_.path(); }

 private:
  ScratchDir dir_;
};

// What the model answers to the whole conversation, computed without `chat`.
std::string answer(const std::string& model, const Json& messages, int new_tokens) {
  const Finished ids = run_sluice({"tokenize", "--tokenizer", model, "--chat"},
                                  Json::array({{{"messages", messages}}}).dump());
  INFO(ids.err);
  REQUIRE(ids.exit_code == 0);
  const Json rendered = Json::parse(ids.out)[0];
  std::string list;
  for (const Json& id : rendered["ids"]) list += (list.empty() ? "" : ",") + id.dump();
  const Finished done = run_sluice({"generate", "--model", model, "--prompt-ids", list, "--greedy",
                                    "--max-new-tokens", std::to_string(new_tokens), "--policy",
                                    "resident", "--json"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  return Json::parse(done.out)["text"];
}

std::vector<std::string> chat_with(const std::string& model, const std::string& policy) {
  return {"chat", "--model",  model,  "--greedy", "--max-new-tokens",
          "9",    "--policy", policy, "--system", "Be brief."};
}

}  // namespace

TEST_CASE("each turn of a chat answers to the whole conversation") {
  const ChatModel model;
  Json messages = Json::array({{{"role", "system"}, {"content", "Be brief."}}});
  const auto turn = [&](const std::string& text) {
    messages.push_back({{"role", "user"}, {"content", text}});
    const std::string said = answer(model.path(), messages, 9);
    messages.push_back({{"role", "assistant"}, {"content", said}});
    return said;
  };
  const std::string first = turn("hello"), second = turn("and then?");
  messages.erase(messages.begin() + 1, messages.end());
  const std::string fresh = turn("and then?");
  CHECK(second != fresh);  // else forgetting the history would go unseen

  for (const char* policy : {"resident", "ring_prefetch"}) {
    std::vector<std::string> arguments = chat_with(model.path(), policy);
    if (std::string(policy) != "resident")
      arguments.insert(arguments.end(), {"--gpu-layer-budget", "2"});
    const Finished done =
        run_sluice(arguments, "hello\r\n\nand then?\n/reset\nand then?\n/exit\nnever read\n");
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(done.out == first + "\n" + second + "\n" + fresh + "\n");
  }
}

TEST_CASE("a chat forgets its oldest turns when the context is full, and says so") {
  const ChatModel model;
  std::vector<std::string> arguments = chat_with(model.path(), "resident");
  arguments.insert(arguments.end(), {"--context", "60"});
  const std::string long_message(30, 'x');
  const Finished done = run_sluice(
      arguments, long_message + "\n" + std::string(60, 'y') + "\n" + long_message + "\n");
  INFO(done.err);
  CHECK(done.exit_code == 0);
  const Json message = {{"role", "user"}, {"content", long_message}};
  const Json system = {{"role", "system"}, {"content", "Be brief."}};
  const std::string said = answer(model.path(), {system, message}, 9);
  CHECK(done.out == said + "\n" + said + "\n");
  CHECK_THAT(done.err, Contains("the message has 72 tokens") && Contains("leaves 51") &&
                           Contains("the oldest 1 turns no longer fit the context of 60"));
}

}  // namespace sluice
