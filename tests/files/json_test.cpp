// JSON with limits, and what is said of a text that is none.
#include "core/json.hpp"

#include "core/json_node.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

std::string refusal(std::string_view text) {
  return input_error([&] { parse_json(text, "F"); });
}

std::string nested(int levels) { return std::string(levels, '[') + std::string(levels, ']'); }

}  // namespace

TEST_CASE("a document is what the library reads") {
  for (const char* text :
       {"null", "[1, -2, 3.5e2, \"\\u00e9\\ud83d\\ude00\", true]", " {\"a\": {\"b\": []}}\n\t ",
        "{\"a\": 1, \"a\": 2}", "\"\\u0000\"", "\xEF\xBB\xBF{}"}) {
    CHECK(parse_json(text, "F") == Json::parse(text));
  }
  const auto ordered = parse_ordered_json(R"({"z": 1, "a": 2})", "F");
  CHECK(ordered.dump() == R"({"z":1,"a":2})");
  const test::ScratchDir dir;
  CHECK(load_json(dir.write("a", "[7]"), 3) == Json::array({7}));
}

TEST_CASE("what is no JSON is refused with line and column") {
  CHECK_THAT(refusal(""), StartsWith("F:1:1: not JSON: syntax error"));
  CHECK_THAT(refusal("\n"), StartsWith("F:2:1: not JSON: "));
  CHECK_THAT(refusal("{\n  \"a\": ?}"), StartsWith("F:2:8: not JSON: "));
  CHECK_THAT(refusal("[1,\n2,\n\n x]"), StartsWith("F:4:2: not JSON: "));
  CHECK_THAT(refusal("{} {}"), StartsWith("F:1:4: not JSON: "));
  CHECK_THAT(refusal("[1]\n]"), StartsWith("F:2:1: not JSON: "));
  CHECK_THAT(refusal("[1e999]"), StartsWith("F:1:7: not JSON: number overflow"));
  CHECK_THAT(refusal("\"\xFF\""), StartsWith("F:1:2: not JSON: "));
  CHECK_THAT(input_error([] { parse_json("?", "F", 12); }), StartsWith("F:12:1: not JSON: "));
  CHECK_THAT(input_error([] { parse_ordered_json("?", "F"); }), StartsWith("F:1:1: not JSON: "));
  CHECK(refusal("\"" + std::string(100'000, 'a')).size() < 400);
}

TEST_CASE("a zero byte does not end a document") {
  using namespace std::string_view_literals;
  CHECK(refusal("{}\0"sv) == "F:1:3: not JSON: a zero byte");
  CHECK(refusal("{}\n\0junk"sv) == "F:2:1: not JSON: a zero byte");
  CHECK(refusal("[1, \0 2]"sv) == "F:1:5: not JSON: a zero byte");
}

TEST_CASE("nesting has a limit") {
  CHECK(parse_json(nested(64), "F").size() == 1);
  CHECK(refusal(nested(65)) == "F:1:65: nested deeper than 64 levels");
  CHECK(refusal("\n" + std::string(200'000, '[')) == "F:2:65: nested deeper than 64 levels");
  CHECK_THAT(input_error([] { parse_ordered_json(std::string(200'000, '['), "F"); }),
             StartsWith("F:1:65: nested deeper"));
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  CHECK_THAT(refusal(objects), Contains("nested deeper than 64 levels"));
}

TEST_CASE("a reader of events sees the same text and the same refusals") {
  struct Keys final : JsonEvents {
    std::string all;
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(std::size_t) override { return true; }
    bool key(string_t& name) override {
      all += name;
      return true;
    }
    bool end_object() override { return true; }
    bool start_array(std::size_t) override { return true; }
    bool end_array() override { return true; }
  };
  Keys keys;
  parse_json_events(R"({"a": [{"b": 1}], "c": null})", "F", keys);
  CHECK(keys.all == "abc");
  const auto message = [](std::string_view text) {
    Keys reader;
    return input_error([&] { parse_json_events(text, "F", reader); });
  };
  CHECK_THAT(message("{\n]"), StartsWith("F:2:1: not JSON: "));
  CHECK_THAT(message("[1e999]"), Contains(": not JSON: number overflow"));
  CHECK(message(std::string_view("{}\0", 3)) == "F:1:3: not JSON: a zero byte");
}

TEST_CASE("a node tells its file, its place, its value and what is needed") {
  const Json json = Json::parse(R"({"a": {"b": [1, "x", null]}, "n": 2.5, "t": true, "e": null})");
  const JsonNode root(json, "F");
  const JsonNode list = root.at("a").at("b");
  CHECK(list.size() == 3);
  CHECK(list[0].integer(0, 1) == 1);
  CHECK(list[1].string() == "x");
  CHECK(root.at("n").number(0, 3) == 2.5);
  CHECK(root.at("t").boolean());
  CHECK((root.has("n") && !root.has("e") && !root.find("none")));
  CHECK((root.boolean_or("t", false) && root.boolean_or("e", true)));
  CHECK(root.string_or("none", "x") == "x");
  CHECK(root.where("n") == "F: n");
  CHECK(list[2].where() == "F: a.b[2]");
  const auto message = [](const auto& f) { return input_error(f); };
  CHECK(message([&] { root.at("e"); }) == "F: e is missing");
  CHECK(message([&] { root.at("a").at("c"); }) == "F: a.c is missing");
  CHECK(message([&] { list.at("c"); }) == "F: a.b is [1,\"x\",null], an object is needed");
  CHECK(message([&] { root.size(); }).ends_with("an array is needed"));
  CHECK(message([&] { list[1].integer(0, 5); }) ==
        "F: a.b[1] is \"x\", an integer from 0 to 5 is needed");
  CHECK(message([&] { list[0].integer(2, 5); }) ==
        "F: a.b[0] is 1, an integer from 2 to 5 is needed");
  CHECK(message([&] { root.at("n").integer(0, 5); }).ends_with("an integer from 0 to 5 is needed"));
  CHECK(message([&] { root.at("n").number(3, 4); }) ==
        "F: n is 2.5, a number from 3 to 4 is needed");
  CHECK(message([&] { list[0].string(); }) == "F: a.b[0] is 1, a string is needed");
  CHECK(message([&] { list[0].boolean(); }) == "F: a.b[0] is 1, true or false is needed");
  CHECK(message([&] { list[0].fail("{} is odd", 1); }) == "F: a.b[0]: 1 is odd");
  const Json three = 3;
  CHECK(message([&] { JsonNode(three, "F").at("a"); }) == "F: is 3, an object is needed");
}

}  // namespace sluice
