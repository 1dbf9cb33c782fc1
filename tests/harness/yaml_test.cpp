#include <string>

#include "core/error.hpp"
#include "harness/value.hpp"
#include "harness/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"

namespace sluice {

TEST_CASE("a YAML text becomes a tree that knows its places") {
  const YamlNode root = parse_yaml("a: 1\nb:\n  - x\n  - 'y'\nc:\n", "f.yaml");
  REQUIRE(root.kind == YamlNode::Kind::map);
  REQUIRE(root.keys.size() == 3);
  CHECK(root.keys[1].name == "b");
  CHECK(root.keys[1].place.line == 2);
  CHECK(root.items[0].text == "1");
  REQUIRE(root.items[1].kind == YamlNode::Kind::list);
  CHECK(to_string(root.items[1].items[1].place) == "f.yaml:4:5");
  CHECK_FALSE(root.items[1].items[0].quoted);
  CHECK(root.items[1].items[1].quoted);
  CHECK(root.items[2].kind == YamlNode::Kind::null);
  CHECK(root.items[2].place.line == 5);
  CHECK(root.find("c") == &root.items[2]);
  CHECK(root.find("d") == nullptr);
}

TEST_CASE("what surprises in YAML is an error with its place") {
  struct Trap {
    const char* text;
    const char* place;
    const char* message;
  };
  const Trap traps[] = {
      {"a: 1\nb: 2\na: 3\n", "t:3:1", "'a' stands twice; the first is in line 1"},
      {"a: {x: 1, x: 2}\n", "t:1:11", "stands twice"},
      {"a: &n 1\n", "t:1:", "anchor"},
      {"a: &n [1]\nb: *n\n", "t:1:", "anchor"},
      {"b: *n\n", "t:1:", ""},
      {"<<: {a: 1}\n", "t:1:1", "merge key"},
      {"? [a, b]\n: 1\n", "t:1:", "as a key"},
      {"? {a: b}\n: 1\n", "t:1:", "as a key"},
      {"~: 1\n", "t:1:1", "empty key"},
      {"a:\n\t- 1\n", "t:2:", "not YAML"},
      {"a: [1, 2\n", "t:", "not YAML"},
      {"a: !!binary aGk=\n", "t:1:", "tag"},
      {"a: !thing x\n", "t:1:", "tag"},
      {"--- \na: 1\n---\nb: 2\n", "t:3:", "second document"},
      {"a: [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]\n", "t:1:", "nested deeper than 16"},
  };
  for (const Trap& trap : traps) {
    INFO(trap.text);
    const std::string message = input_error([&] { parse_yaml(trap.text, "t"); });
    CHECK_THAT(message, StartsWith(trap.place));
    CHECK_THAT(message, Contains(trap.message));
  }
}

TEST_CASE("a bomb of aliases and an endless nest are refused before they grow") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 9; ++j) bomb += "*a" + std::to_string(i - 1) + ", ";
    bomb += "x]\n";
  }
  CHECK_THAT(input_error([&] { parse_yaml(bomb, "t"); }), Contains("anchor"));
  CHECK_THAT(input_error([&] { parse_yaml(std::string(200'000, '['), "t"); }), Contains("t:1:"));
  CHECK_THAT(input_error([&] { parse_yaml(std::string(5u << 20, ' '), "t"); }),
             Contains("at most"));
}

TEST_CASE("a file that is not there is named") {
  CHECK_THAT(input_error([] { load_yaml("/nowhere/x.yaml"); }),
             StartsWith("/nowhere/x.yaml: no such file"));
  CHECK_THAT(input_error([] { load_yaml("/"); }), StartsWith("/: not a file"));
}

TEST_CASE("numbers are read exactly or not at all") {
  CHECK(read_integer("42")->value == 42);
  CHECK(read_integer("-7")->value == -7);
  CHECK(read_integer("9223372036854775807")->value == 9223372036854775807);
  CHECK(read_integer("9223372036854775808")->overflow);
  CHECK(read_integer("123456789012345678901234567890")->overflow);
  for (const char* text : {"", "x", "1.0", "1e3", "0x10", "1_000", " 1", "1 ", "+-1", "--1", "+"})
    CHECK_FALSE(read_integer(text));

  CHECK(*read_real("0.25") == 0.25);
  CHECK(*read_real("-1e-3") == -0.001);
  for (const char* text : {"", "nan", ".nan", "inf", "-.inf", "1e999", "0x1p3", "1,5", "."})
    CHECK_FALSE(read_real(text));

  CHECK(*read_bool("true"));
  CHECK_FALSE(*read_bool("false"));
  for (const char* text : {"yes", "on", "1", "y", "tRue"}) CHECK_FALSE(read_bool(text));
}

TEST_CASE("sizes are whole bytes in the unit written") {
  CHECK(*read_size("8GiB") == 8ull << 30);
  CHECK(*read_size("512MiB") == 512ull << 20);
  CHECK(*read_size("1.5 GiB") == 3ull << 29);
  CHECK(*read_size("6e9") == 6'000'000'000);
  CHECK(*read_size("6GB") == 6'000'000'000);
  CHECK(*read_size("10 kB") == 10'000);
  CHECK(*read_size("4096") == 4096);
  CHECK(*read_size("9007199254740993") == 9007199254740993);  // beyond a double's 53 bits
  for (const char* text : {"", "GiB", "8 gib", "8G", "-1", "-1GiB", "1e30", "99999999TiB", "8GiB ",
                           "8  GiB", "nan", "4096 "})
    CHECK_FALSE(read_size(text));
}

TEST_CASE("token ids are separated by commas or spaces") {
  CHECK(*read_ids("1,2,3") == std::vector<std::int32_t>{1, 2, 3});
  CHECK(*read_ids("4, 5 6") == std::vector<std::int32_t>{4, 5, 6});
  CHECK(read_ids("")->empty());
  for (const char* text : {"1;2", "-1", "2147483648", "a", "1.5"}) CHECK_FALSE(read_ids(text));
}

}  // namespace sluice
