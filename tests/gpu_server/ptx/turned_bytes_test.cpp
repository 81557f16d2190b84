// ldmatrix and stmatrix that turn matrices of bytes, in the layouts that PTX documents.
#include <numeric>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Each lane gives a row of 16 bytes; then the instruction, whose registers are %r0 to %r3 and whose address is [%t], and what
// it leaves in them and in shared memory.
std::string turning(const std::string& instruction) {
    return R"(
.version 8.7
.target sm_120a
.address_size 64
.shared .align 16 .b8 tiles[512];
.entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %in, %out, %o; .reg .b32 %lane, %t, %s, %r<4>;
    mov.u32 %lane, %laneid; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mul.wide.u32 %o, %lane, 16; add.u64 %in, %in, %o; add.u64 %out, %out, %o;
    mov.u32 %t, tiles; shl.b32 %s, %lane, 4; add.u32 %t, %t, %s;
    ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in]; st.shared.v4.u32 [%t], {%r0, %r1, %r2, %r3};
    bar.sync 0;
    )" + instruction +
           R"(
    bar.sync 0;
    st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};
    ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%t];
    st.global.v4.u32 [%out+512], {%r0, %r1, %r2, %r3};
    ret;
})";
}

std::vector<uint8_t> run_turning(const std::string& instruction, const std::vector<uint8_t>& in) {
    Bench bench(turning(instruction));
    auto out = bench.array<uint8_t>(1024);
    bench.run("k", {1}, {32}, bench.array(in), out);
    return {out.data(), out.data() + out.size};
}

}  // namespace

TEST_CASE("ldmatrix turns matrices of 16 x 16 bytes", "[ptx][matrix]") {
    std::vector<uint8_t> in(512);
    for (uint32_t i = 0; i < 512; ++i) in[i] = static_cast<uint8_t>(i * 7 + i / 256);
    auto one = run_turning("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%t];", in);
    auto two = run_turning("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r0, %r1, %r2, %r3}, [%t];", in);
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
        run_turning("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b4x16_p64 {%r0, %r1, %r2, %r3}, [%t];", in);
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t i = 0; i < 16; ++i)
            CHECK(two[lane * 16 + i] == element(i / 8 * 16 + lane % 4 * 4 + i % 4, lane / 4 + i / 4 % 2 * 8));
}

TEST_CASE("stmatrix turns matrices of 16 x 8 bytes", "[ptx][matrix]") {
    std::vector<uint8_t> in(512);
    for (uint32_t i = 0; i < 512; ++i) in[i] = static_cast<uint8_t>(i * 11 + i / 256);
    auto four = run_turning("stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%t], {%r0, %r1, %r2, %r3};", in);
    auto one = run_turning("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%t], {%r0};", in);
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
        CHECK_FALSE(load(turning(line)));
    }
}
