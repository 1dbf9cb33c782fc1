// Chat templates against what jinja2 renders, see make_reference.py.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/chat/chat_template.hpp"
#include "models/chat/python_text.hpp"
#include "models/chat_format.hpp"
#include "models/tokenizer/tokenizer.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"
#include "tests/tokenizer/files.hpp"

using namespace sluice;
using Json = nlohmann::ordered_json;

namespace {

ChatRequest request_of(const Json& from) {
  ChatRequest request;
  request.messages = from.at("messages");
  if (from.contains("tools")) request.tools = from.at("tools");
  if (from.contains("enable_thinking"))
    request.enable_thinking = from.at("enable_thinking").get<bool>();
  request.add_generation_prompt = from.value("add_generation_prompt", true);
  return request;
}

// A model's directory with a tokenizer_config.json, gone with the object.
class TemplateDirectory {
 public:
  explicit TemplateDirectory(const Json& config) {
    directory_.write("tokenizer_config.json", config.dump());
  }
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  test::ScratchDir directory_;
};

// `variables`: an object.
std::string rendered(const std::string& source,
                     const Json& variables = {{"messages", Json::array()}}) {
  chat::Value::Variables values;
  for (const auto& [name, value] : variables.items()) values[name] = chat::Value::of(value);
  return chat::ChatTemplate(source).render(std::move(values));
}

}  // namespace

TEST_CASE("Qwen3 chats have the reference's text and ids") {
  const Json cases = test::read_data<Json>("qwen3_chat.json");
  const ChatFormat format = ChatFormat::load(test::qwen3_directory());
  const Tokenizer tokenizer = Tokenizer::load(test::qwen3_directory());
  REQUIRE(cases.size() == 7);
  for (const Json& answer : cases) {
    INFO(answer.at("messages"));
    const std::string text = format.render(request_of(answer));
    CHECK(text == answer.at("text").get<std::string>());
    CHECK(tokenizer.encode(text) == answer.at("ids").get<std::vector<std::int32_t>>());
  }
}

TEST_CASE("templates of several kinds render as jinja2 renders them, and fail where it fails") {
  const Json kinds = test::read_data<Json>("chats.json");
  REQUIRE(kinds.size() == 4);
  for (const Json& kind : kinds) {
    INFO(kind.at("name"));
    REQUIRE(kind.at("cases").size() == 60);
    const bool is_qwen3 = kind.at("template").is_null();
    const TemplateDirectory directory(
        {{"chat_template", kind.at("template")}, {"bos_token", {{"content", "<s>"}}}});
    const ChatFormat format =
        ChatFormat::load(is_qwen3 ? test::qwen3_directory() : directory.path());
    for (const Json& answer : kind.at("cases")) {
      INFO(answer.at("messages"));
      if (answer.at("text").is_null()) {
        CHECK_THROWS_AS(format.render(request_of(answer)), InputError);
      } else {
        CHECK(format.render(request_of(answer)) == answer.at("text").get<std::string>());
      }
    }
  }
}

TEST_CASE("filters and methods take the arguments that jinja2's take and give what they give") {
  const Json data = test::read_data<Json>("calls.json");
  const auto call = [&](const Json& of) {
    return rendered("{{ " + of.at("call").get<std::string>() + " }}", data.at("variables"));
  };
  REQUIRE(data.at("calls").size() > 100);
  for (const Json& answer : data.at("calls")) {
    INFO(answer.at("call"));
    if (answer.at("text").is_null())
      CHECK_THROWS_AS(call(answer), InputError);
    else
      CHECK(call(answer) == answer.at("text").get<std::string>());
  }
  // What jinja2 has beyond that is refused, never passed over.
  REQUIRE(data.at("unsupported").size() == 12);
  for (const Json& answer : data.at("unsupported")) {
    INFO(answer.at("call"));
    CHECK_THROWS_WITH(call(answer), Contains("not supported"));
  }
}

TEST_CASE("an argument that is left over is named") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"'a'.strip('x', 'y')",
       "line 1: the argument 2 of 'strip' is not supported: it takes (chars, /)"},
      {"'a'.strip(nothing=3)", "the argument 'nothing' of 'strip' is not supported"},
      {"'a'|first(5)", "the argument 1 of 'first' is not supported: it takes ()"},
      {"'a'|replace('a', 'b', old='c')", "'replace' is given 'old' twice"},
      {"range(1, stop=3)", "the argument 'stop' of 'range' is not supported"},
      {"raise_exception('a', 'b')", "the argument 2 of 'raise_exception' is not supported"},
  };
  for (const auto& [call, says] : cases)
    CHECK_THROWS_WITH(rendered("{{ " + std::string(call) + " }}"), Contains(says));
}

TEST_CASE("integers stay within 64 bits or are refused") {
  const Json variables = {{"most", INT64_MAX}, {"least", INT64_MIN}, {"beyond", UINT64_MAX}};
  CHECK(rendered("{{ most + 0 }} {{ least - 0 }} {{ least % -1 }} {{ -most }}", variables) ==
        "9223372036854775807 -9223372036854775808 0 -9223372036854775807");
  CHECK(rendered("{{ beyond }} {{ [beyond]|tojson }}", variables) ==
        "18446744073709551615 [18446744073709551615]");
  for (const char* sum :
       {"most + 1", "least - 1", "most * 2", "least * -1", "-least", "least // -1", "beyond + 0",
        "beyond > 1", "[1, 2][beyond]", "'ab'[:beyond]", "range(beyond)", "beyond is odd"})
    CHECK_THROWS_WITH(rendered("{{ " + std::string(sum) + " }}", variables),
                      Contains("an integer beyond 64 bits"));
}

TEST_CASE("bytes of a request that are not UTF-8 count as U+FFFD") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"{{ messages[0].content.strip() }}", "x\xEF\xBF\xBD"},
      {"{{ messages[0].content.split()|join(' ') }}", "x\xEF\xBF\xBD"},
      {"{{ messages[0].content|list|length }}", "4"},
      {"{{ messages[0].content[::-1] }}", "\xEF\xBF\xBDx  "},
      {"{{ messages[0]|tojson }}",
       "{\"role\": \"user\", \"content\": \"  x\xEF\xBF\xBD\", \"\xEF\xBF\xBD\": "
       "[\"\xEF\xBF\xBD\"]}"},
      {"{{ tools[0].name|upper }}", "A\xEF\xBF\xBD"},
  };
  ChatRequest request;
  request.messages = Json::array(
      {Json{{"role", "user"}, {"content", "  x\xF0"}, {"\xC3", Json::array({"\x80"})}}});
  request.tools = Json::array({Json{{"name", "a\xE4\xB8"}}});
  for (const auto& [source, text] : cases) {
    const TemplateDirectory directory(Json{{"chat_template", source}});
    CHECK(ChatFormat::load(directory.path()).render(request) == text);
  }
}

TEST_CASE("a bad message is refused by its index") {
  const ChatFormat format = ChatFormat::load(test::qwen3_directory());
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({})", "messages: must be an array, is object"},
      {R"([])", "messages: there is none"},
      {R"([{"role":"user","content":"a"}, 3])", "messages[1]: must be an object, is number"},
      {R"([{"content":"a"}])", "messages[0]: the key 'role' is missing"},
      {R"([{"role":7,"content":"a"}])", "messages[0].role: must be a string, is number"},
      {R"([{"role":"user"}])", "messages[0]: the key 'content' is missing"},
      {R"([{"role":"user","content":null}])", "messages[0].content: must be a string, is null"},
      {R"([{"role":"user","content":{"a":1}}])",
       "messages[0].content: must be a string, is object"},
  };
  for (const auto& [messages, says] : cases) {
    ChatRequest request;
    request.messages = Json::parse(messages);
    CHECK_THROWS_WITH(format.render(request), Contains(says));
  }
  ChatRequest request;
  request.messages = Json::parse(R"([{"role":"user","content":"a"}])");
  request.tools = "x";
  CHECK_THROWS_WITH(format.render(request), Contains("tools: must be an array, is string"));
}

TEST_CASE("a directory without a chat format, or with one that is not supported, is refused") {
  CHECK_THROWS_WITH(ChatFormat::load("no/such/directory"), Contains("no chat format"));
  CHECK_THROWS_WITH(ChatFormat::load(TemplateDirectory(Json{{"chat_template", 3}}).path()),
                    Contains("tokenizer_config.json: chat_template is 3, an array is needed"));
  CHECK_THROWS_WITH(
      ChatFormat::load(TemplateDirectory(Json{{"chat_template", "a\n{% include 'x' %}"}}).path()),
      Contains("chat_template: line 2: the block 'include' is not supported"));
  const Json listed = {{{"name", "tool_use"}, {"template", "t"}},
                       {{"name", "default"}, {"template", "d"}}};
  ChatRequest request;
  request.messages = Json::parse(R"([{"role":"user","content":"a"}])");
  CHECK(
      ChatFormat::load(TemplateDirectory(Json{{"chat_template", listed}}).path()).render(request) ==
      "d");
}

TEST_CASE("a broken template is refused with its line") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ 1", "line 1: a tag is not closed"},
      {"\n{% if x %}", "line 2: a block is not closed: 'endif' is missing"},
      {"{% endfor %}", "line 1: 'endfor' has nothing to end"},
      {"{# a", "a comment is not closed"},
      {"{{ 'a }}", "a string is not closed"},
      {"{{ a ? b }}", "unexpected character '?'"},
      {"{{ }}", "a value is missing"},
      {"{% break %}", "outside of a loop"},
      {"{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}",
       "nested too deep"},
      {"{{ 1" + std::string(5000, '+') + "1 }}", "nested too deep"},
  };
  for (const auto& [source, says] : cases) CHECK_THROWS_WITH(rendered(source), Contains(says));
  std::string sum = "{{ 1";
  for (int i = 0; i < 100'000; ++i) sum += " + 1";
  CHECK_THROWS_WITH(rendered(sum + " }}"), Contains("more than 400 levels"));
}

TEST_CASE("a namespace that holds itself is freed with the others") {  // seen by AddressSanitizer
  CHECK(
      rendered("{% set n = namespace(a=1) %}{% set n.n = n %}{% set n.a = n.n.a + 1 %}{{ n.a }}") ==
      "2");
}

TEST_CASE("a template that fails while it runs is refused with its line") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n\n{{ a.b }}", "line 3: 'a' is not defined"},
      {"{{ 'a' + 1 }}", "line 1: '+' of a string and a number"},
      {"{{ messages | sort }}", "the filter 'sort' is not supported"},
      {"{{ messages is odd_one }}", "the test 'is odd_one' is not supported"},
      {"{{ strftime_now('%d') }}", "the function 'strftime_now' is not supported"},
      {"{{ raise_exception('no') }}", "the template refuses: no"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{% for a in range(100000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
       "too many steps"},
      {"{% for a in range(2) %}{% set loop.first = a %}{% endfor %}", "'loop' takes no attributes"},
      {"{% for a in range(20000) %}{% set n = namespace() %}{% endfor %}", "10000 namespaces"},
      {"{% set n = namespace(s='aaaaaaaa') %}{% for a in range(100) %}{% set n.s = n.s + n.s %}{% "
       "endfor %}",
       "longer than"},
  };
  for (const auto& [source, says] : cases) CHECK_THROWS_WITH(rendered(source), Contains(says));
}

TEST_CASE("numbers are written as Python writes them") {
  const std::vector<std::pair<double, std::string>> cases = {{0.0, "0.0"},
                                                             {-0.0, "-0.0"},
                                                             {1.0, "1.0"},
                                                             {0.1, "0.1"},
                                                             {1e15, "1000000000000000.0"},
                                                             {1e16, "1e+16"},
                                                             {1.5e300, "1.5e+300"},
                                                             {1e-4, "0.0001"},
                                                             {1e-5, "1e-05"},
                                                             {123456789.125, "123456789.125"},
                                                             {5e-324, "5e-324"}};
  for (const auto& [value, text] : cases) CHECK(python::float_repr(value) == text);
  const Json endless = {{"inf", INFINITY}, {"nan", NAN}};
  CHECK(rendered("{{ inf }} {{ -inf }} {{ nan }} {{ [inf, -inf, nan]|tojson }}", endless) ==
        "inf -inf nan [Infinity, -Infinity, NaN]");
  CHECK(python::to_json(Json::parse(R"({"b":[1,"\u00e9\"\n\u0001"],"a":{}})")) ==
        "{\"b\": [1, \"\xC3\xA9\\\"\\n\\u0001\"], \"a\": {}}");
  CHECK(python::to_json(Json::parse(R"(["\ud83d\ude42\u007f"])"),
                        {.ascii_only = true, .indent = "  "}) ==
        "[\n  \"\\ud83d\\ude42\\u007f\"\n]");
}
