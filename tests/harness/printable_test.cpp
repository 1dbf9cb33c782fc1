// What a terminal shows of text that others wrote.
#include "harness/printable.hpp"

#include "tests/catch.hpp"

namespace sluice {

TEST_CASE("text is shown as it is, whatever its language") {
  for (const char* text : {"", "plain: [1] {\"a\"}\\n ~",
                           "na\xC3\xAFve \xE4\xB8\xAD \xF0\x9F\x99\x82", "\xC2\xA0\xC3\xBF"})
    CHECK(printable(text) == text);
}

TEST_CASE("what a terminal would obey is written out") {
  CHECK(printable("a\x1b[31mb\x1b]0;t\x07") == "a\\x1b[31mb\\x1b]0;t\\x07");
  CHECK(printable("a\nb\r\tc\x7f") == "a\\x0ab\\x0d\\x09c\\x7f");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xC2\x9B"
                  "1m\xC2\x80\xC2\x9F") == "\\u009b1m\\u0080\\u009f");  // 8-bit codes
  CHECK(printable("\x9B"
                  "1m\xFF\xC3") == "\\x9b1m\\xff\\xc3");  // not UTF-8
  CHECK(printable("\xE4\xB8x") == "\\xe4\\xb8x");
}

}  // namespace sluice
