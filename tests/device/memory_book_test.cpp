#include "core/device/memory_book.hpp"

#include <stdexcept>

#include "tests/catch.hpp"

using namespace sluice;

TEST_CASE("a block counts as its size rounded up to the alignment") {
  const MemoryBook book(10'000);
  CHECK(book.admit(0, "nothing") == 256);
  CHECK(book.admit(1, "a byte") == 256);
  CHECK(book.admit(256, "a line") == 256);
  CHECK(book.admit(257, "a line and a byte") == 512);
}

TEST_CASE("the limit counts what blocks count as") {
  MemoryBook book(1000);
  CHECK(book.admit(768, "three") == 768);
  CHECK_THROWS_AS(book.admit(769, "would be 1024"), MemoryLimitError);
  CHECK_THROWS_AS(book.admit(~std::uint64_t{0}, "would wrap round"), MemoryLimitError);
  int a = 0, b = 0;
  book.add_device(&a, 512);
  CHECK_THROWS_WITH(book.admit(300, "slots"),
                    "asked for 300 bytes for slots: 512 of 1000 bytes of device memory are in use");
  CHECK(book.admit(256, "slots") == 256);
  book.add_pinned(&b, 5'000);  // another memory
  CHECK(book.admit(256, "slots") == 256);
}

TEST_CASE("what others take of the device counts under the limit") {
  MemoryBook book(1000);
  CHECK(book.admit(512, "two", 488) == 512);
  CHECK_THROWS_AS(book.admit(512, "two", 489), MemoryLimitError);
  CHECK_THROWS_AS(book.admit(1, "a byte", 5000), MemoryLimitError);
  int a = 0;
  book.add_device(&a, 512);
  CHECK_THROWS_WITH(
      book.admit(300, "slots", 100),
      "asked for 300 bytes for slots: 512 of 1000 bytes of device memory are in use, and "
      "100 beside");
  CHECK(book.use().other_bytes == 0);
}

TEST_CASE("use and peaks follow the blocks") {
  MemoryBook book(10'000);
  int a = 0, b = 0;
  book.add_device(&a, 512);
  book.add_device(&b, 256);
  CHECK(book.remove_device(&a) == 512);
  CHECK(book.use().device_bytes == 256);
  CHECK(book.use().device_peak_bytes == 768);
  book.add_pinned(&a, 77);
  CHECK(book.use().pinned_bytes == 77);
  CHECK(book.remove_pinned(&a) == 77);
  CHECK(book.use().pinned_bytes == 0);
  CHECK(book.use().pinned_peak_bytes == 77);
  CHECK_THROWS_AS(book.remove_device(&a), std::out_of_range);
}
