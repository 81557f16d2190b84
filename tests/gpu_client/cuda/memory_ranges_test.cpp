#include "gpu_client/cuda/memory_ranges.hpp"

#include "tests/support/catch.hpp"

using tnr::cuda::RangeAllocator;

TEST_CASE("pieces are aligned, apart from each other, and end with the range", "[ranges]") {
    RangeAllocator ranges;
    ranges.add(0x1000, 0x1000);
    uint64_t one = ranges.take(0x100, 0x200), two = ranges.take(0x100, 0x200);
    CHECK(one % 0x200 == 0);
    CHECK(two % 0x200 == 0);
    CHECK((one + 0x100 <= two || two + 0x100 <= one));
    CHECK(ranges.free_bytes() == 0xe00);
    CHECK(ranges.take(0x2000, 1) == 0);
}

TEST_CASE("what is given back grows together again", "[ranges]") {
    RangeAllocator ranges;
    ranges.add(0x1000, 0x300);
    uint64_t a = ranges.take(0x100, 1), b = ranges.take(0x100, 1), c = ranges.take(0x100, 1);
    CHECK(ranges.take(1, 1) == 0);
    ranges.add(a, 0x100);
    ranges.add(c, 0x100);
    CHECK(ranges.take(0x200, 1) == 0);
    ranges.add(b, 0x100);
    CHECK(ranges.take(0x300, 1) == 0x1000);
}

TEST_CASE("the smallest piece that fits is taken", "[ranges]") {
    RangeAllocator ranges;
    ranges.add(0x10000, 0x1000);
    ranges.add(0x20000, 0x100);
    CHECK(ranges.take(0x100, 1) == 0x20000);
    CHECK(ranges.take(0x100, 1) == 0x10000);
}

TEST_CASE("a certain address is taken only when all of it is free", "[ranges]") {
    RangeAllocator ranges;
    ranges.add(0x1000, 0x1000);
    CHECK(ranges.take_at(0x1400, 0x200));
    CHECK_FALSE(ranges.take_at(0x1500, 0x10));
    CHECK_FALSE(ranges.take_at(0x1300, 0x200));
    CHECK_FALSE(ranges.take_at(0x3000, 1));
    CHECK(ranges.free_bytes() == 0xe00);
}
