// ldmatrix and stmatrix that turn matrices of bytes, in the layouts that PTX documents.

#include "tests/gpu_server/ptx/tiles_bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

TEST_CASE("ldmatrix turns matrices of 16 x 16 bytes", "[ptx][matrix]") {
    std::vector<uint8_t> in(512);
    for (uint32_t i = 0; i < 512; ++i) in[i] = static_cast<uint8_t>(i * 7 + i / 256);
    auto one = through_tiles("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%t];", in);
    auto two = through_tiles("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r0, %r1, %r2, %r3}, [%t];", in);
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t i = 0; i < 16; ++i) {
            INFO("lane " << lane << ", byte " << i);
            uint32_t matrix = i / 8, row = lane % 4 * 4 + i % 4, column = lane / 4 + i / 4 % 2 * 8;
            uint8_t expected = in[matrix * 256 + row * 16 + column];
            CHECK(two[lane * 16 + i] == expected);
            CHECK(one[lane * 16 + i] == (i < 8 ? expected : in[lane * 16 + i]));
        }
}

TEST_CASE("ldmatrix turns elements of four bits that get a byte each", "[ptx][matrix]") {
    std::vector<uint8_t> in(512);
    auto element = [](uint32_t row, uint32_t column) { return static_cast<uint8_t>((row * 5 + column * 3 + 1) & 15); };
    for (uint32_t row = 0; row < 32; ++row)
        for (uint32_t column = 0; column < 16; ++column)
            in[row * 16 + column / 2] |= static_cast<uint8_t>(element(row, column) << column % 2 * 4);
    auto two =
        through_tiles("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b4x16_p64 {%r0, %r1, %r2, %r3}, [%t];", in);
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t i = 0; i < 16; ++i)
            CHECK(two[lane * 16 + i] == element(i / 8 * 16 + lane % 4 * 4 + i % 4, lane / 4 + i / 4 % 2 * 8));
}

TEST_CASE("stmatrix turns matrices of 16 x 8 bytes", "[ptx][matrix]") {
    std::vector<uint8_t> in(512);
    for (uint32_t i = 0; i < 512; ++i) in[i] = static_cast<uint8_t>(i * 11 + i / 256);
    auto four = through_tiles("stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%t], {%r0, %r1, %r2, %r3};", in);
    auto one = through_tiles("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%t], {%r0};", in);
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t i = 0; i < 16; ++i) {
            // Matrix i / 4: the lane has the rows lane / 4 and that 8 below, two neighbours of each; rows become columns.
            uint32_t row = lane / 4 + i % 4 / 2 * 8, column = lane % 4 * 2 + i % 2;
            uint32_t place = i / 4 * 128 + column * 16 + row;
            CHECK(four[512 + place] == in[lane * 16 + i]);
            CHECK(one[512 + place] == (i < 4 ? in[lane * 16 + i] : in[place]));
        }
}

TEST_CASE("ldmatrix and stmatrix of bytes: what PTX does not have is refused", "[ptx][matrix]") {
    for (auto* line : {"ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r0, %r1}, [%t];",
                       "ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {%r0, %r1, %r2, %r3}, [%t];",
                       "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b16 {%r0, %r1}, [%t];",
                       "stmatrix.sync.aligned.m16n8.x1.shared.b8 [%t], {%r0};",
                       "stmatrix.sync.aligned.m8n8.x1.trans.shared.b8 [%t], {%r0};"}) {
        INFO(line);
        CHECK_FALSE(load(tiles_kernel(line)));
    }
}
