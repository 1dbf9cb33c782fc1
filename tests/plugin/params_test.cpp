#include "core/plugin/params.hpp"

#include <array>

#include "core/error.hpp"
#include "core/nearest.hpp"
#include "tests/catch.hpp"

using namespace sluice;

namespace {

constexpr std::array kSpecs{
    ParamSpec{"depth", ParamType::integer, 3, 1, 64, "slots"},
    ParamSpec{"share", ParamType::real, 0.5, 0, 1, "of the budget"},
    ParamSpec{"eager", ParamType::boolean, 1, 0, 0, "ask early"},
    ParamSpec{"trace", ParamType::text, 0, 0, 0, "a file", "none"},
};

CheckedParams checked(const ParamValues& values) { return {"ring", kSpecs, values}; }

}  // namespace

TEST_CASE("parameters that are not given have their defaults") {
  const CheckedParams params = checked({});
  CHECK(params.integer("depth") == 3);
  CHECK(params.real("share") == 0.5);
  CHECK(params.boolean("eager"));
  CHECK(params.text("trace") == "none");
  CHECK(params.all() ==
        ParamValues{{"depth", "3"}, {"eager", "true"}, {"share", "0.5"}, {"trace", "none"}});
}

TEST_CASE("parameters have the values that are given") {
  const CheckedParams params =
      checked({{"depth", "64"}, {"share", "1e-3"}, {"eager", "false"}, {"trace", "a b"}});
  CHECK(params.integer("depth") == 64);
  CHECK(params.real("share") == 1e-3);
  CHECK_FALSE(params.boolean("eager"));
  CHECK(params.text("trace") == "a b");
  CHECK(checked({{"depth", "1"}}).integer("depth") == 1);
  CHECK(checked({{"share", "0"}}).real("share") == 0);
  CHECK(checked({{"trace", ""}}).text("trace").empty());
}

TEST_CASE("values out of range or of another type are refused with what is allowed") {
  CHECK_THROWS_AS(checked({{"depth", "0"}}), InputError);
  CHECK_THROWS_WITH(
      checked({{"depth", "0"}}),
      "parameter 'depth' of policy 'ring' is '0'; it must be an integer from 1 to 64");
  CHECK_THROWS_WITH(checked({{"share", "1.5"}}),
                    "parameter 'share' of policy 'ring' is '1.5'; it must be a number from 0 to 1");
  CHECK_THROWS_WITH(checked({{"eager", "yes"}}),
                    "parameter 'eager' of policy 'ring' is 'yes'; it must be true or false");
  for (const char* wrong : {"65", "-1", "", " 3", "3 ", "3.0", "three", "0x3", "+3", "1e1",
                            "99999999999999999999", "nan"})
    CHECK_THROWS_AS(checked({{"depth", wrong}}), InputError);
  for (const char* wrong : {"nan", "inf", "-0.1", "", "0.5f", "1,0", "half", "1e999"})
    CHECK_THROWS_AS(checked({{"share", wrong}}), InputError);
  for (const char* wrong : {"", "1", "0", "True", "false "})
    CHECK_THROWS_AS(checked({{"eager", wrong}}), InputError);
}

TEST_CASE("an unknown parameter is refused with the nearest") {
  CHECK_THROWS_WITH(checked({{"dephts", "1"}}),
                    "policy 'ring' has no parameter 'dephts' (did you mean 'depth'?); "
                    "it has: depth, share, eager, trace");
  CHECK_THROWS_WITH(checked({{"colour", "1"}}),
                    "policy 'ring' has no parameter 'colour'; it has: depth, share, eager, trace");
  CHECK_THROWS_WITH(CheckedParams("naive", {}, {{"depth", "1"}}),
                    "policy 'naive' has no parameters, so no 'depth'");
}

TEST_CASE("a policy that asks for what it did not declare fails") {
  const CheckedParams params = checked({});
  CHECK_THROWS_WITH(params.integer("width"),
                    "policy 'ring' asks for its parameter 'width', which it does not declare");
  CHECK_THROWS_WITH(
      params.real("depth"),
      "policy 'ring' asks for its parameter 'depth' as real, but declares it as integer");
}

TEST_CASE("a table of parameters that makes no sense is refused") {
  CHECK_NOTHROW(check_specs("x.so", kSpecs));
  CHECK_NOTHROW(check_specs("x.so", {}));
  const auto refused = [](ParamSpec spec) {
    const std::array specs{kSpecs[0], spec};
    CHECK_THROWS_AS(check_specs("x.so", specs), InputError);
  };
  refused({nullptr, ParamType::boolean, 0, 0, 0, ""});
  refused({"", ParamType::boolean, 0, 0, 0, ""});
  refused({"two words", ParamType::boolean, 0, 0, 0, ""});
  refused({"depth", ParamType::boolean, 0, 0, 0, ""});  // twice
  refused({"a", static_cast<ParamType>(9), 0, 0, 0, ""});
  refused({"a", ParamType::boolean, 0, 0, 0, nullptr});
  refused({"a", ParamType::integer, 0, 1, 2, ""});    // default below
  refused({"a", ParamType::real, 0, 2, 1, ""});       // no range
  refused({"a", ParamType::integer, 1.5, 1, 2, ""});  // no integer
  const std::array bad{ParamSpec{"a", ParamType::integer, 0, 1, 2, ""}};
  CHECK_THROWS_WITH(check_specs("x.so", bad),
                    "x.so: its table of parameters is wrong: parameter 1 ('a') has the default 0, "
                    "which is not an integer from 1 to 2");
}

TEST_CASE("edit distance by hand") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("depth", "dpeth") == 1);  // neighbours swapped
  CHECK(edit_distance("same", "same") == 0);
}

TEST_CASE("the nearest names come first and far ones not at all") {
  const std::vector<std::string> known{"prefetch", "ring_prefetch", "naive_sync", "resident"};
  CHECK(nearest_names("prefecth", known) == std::vector<std::string>{"prefetch"});
  CHECK(nearest_names("ring-prefetch", known) == std::vector<std::string>{"ring_prefetch"});
  CHECK(nearest_names("naive", known) == std::vector<std::string>{"naive_sync"});
  CHECK(nearest_names("zzzzzzzz", known).empty());
  const std::vector<std::string> close{"abcd", "abce", "abxx", "abcf"};
  CHECK(nearest_names("abc", close) == std::vector<std::string>{"abcd", "abce", "abcf"});
  CHECK(nearest_names("abc", close, 1) == std::vector<std::string>{"abcd"});
  CHECK(did_you_mean("abc", close) == " (did you mean 'abcd' or 'abce' or 'abcf'?)");
  CHECK(did_you_mean("zzzzzzzz", known).empty());
}
