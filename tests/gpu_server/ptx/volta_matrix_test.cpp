// Volta's mma.m8n8k4 of halves: four products at once, one by each quarter of the warp. Where elements lie is the PTX manual's.
#include "tests/gpu_server/ptx/matrix_bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

constexpr uint32_t quarters = 4;

uint32_t quarter_of(uint32_t lane) {
    return lane % 16 / 4;
}
bool is_upper(uint32_t lane) {
    return lane >= 16;
}

// Lane by lane, register by register, two halves to each; `place`: of an element, in its quarter's matrix.
std::vector<uint32_t> pack(const std::vector<int>& values, uint32_t rows, uint32_t columns,
                           const std::function<Place(uint32_t lane, uint32_t i)>& place) {
    std::vector<uint32_t> words(32 * 2);
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t i = 0; i < 4; ++i) {
            auto [row, column] = place(lane, i);
            int value = values[(quarter_of(lane) * rows + row) * columns + column];
            words[lane * 2 + i / 2] |= static_cast<uint32_t>(to_half(value)) << i % 2 * 16;
        }
    return words;
}

Place place_of_a(bool columns, uint32_t lane, uint32_t i) {
    uint32_t down = is_upper(lane) ? 4 : 0;
    return columns ? Place{i + down, lane % 4} : Place{lane % 4 + down, i};
}
Place place_of_b(bool columns, uint32_t lane, uint32_t i) {
    uint32_t right = is_upper(lane) ? 4 : 0;
    return columns ? Place{i, lane % 4 + right} : Place{lane % 4, i + right};
}

std::string volta_kernel(const std::string& layouts, bool wide) {
    std::string sums = wide ? "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}" : "{%r0, %r1, %r2, %r3}";
    std::string type = wide ? "f32" : "f16";
    return R"(
.version 6.4
.target sm_70
.address_size 64
.entry k(.param .u64 a, .param .u64 b, .param .u64 out)
{
    .reg .b64 %a, %b, %out, %o; .reg .b32 %lane, %a0, %a1, %b0, %b1, %r<8>;
    mov.u32 %lane, %laneid; mul.wide.u32 %o, %lane, 8;
    ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %out, [out];
    add.u64 %a, %a, %o; add.u64 %b, %b, %o; mul.wide.u32 %o, %lane, 32; add.u64 %out, %out, %o;
    ld.global.v2.u32 {%a0, %a1}, [%a]; ld.global.v2.u32 {%b0, %b1}, [%b];
    mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;
    mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;
    mma.sync.aligned.m8n8k4.)" +
           layouts + "." + type + ".f16.f16." + type + " " + sums + ", {%a0, %a1}, {%b0, %b1}, " + sums + R"(;
    st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};
    st.global.v4.u32 [%out+16], {%r4, %r5, %r6, %r7};
    ret;
})";
}

}  // namespace

TEST_CASE("mma.m8n8k4: each quarter of a warp multiplies halves of its own", "[ptx][matrix]") {
    std::vector<int> a(quarters * 8 * 4), b(quarters * 4 * 8), product(quarters * 8 * 8);
    for (uint32_t i = 0; i < a.size(); ++i) a[i] = small_number(i, 1, -5, 5), b[i] = small_number(i, 2, -5, 5);
    for (uint32_t i = 0; i < product.size(); ++i)
        for (uint32_t q = i / 64, k = 0; k < 4; ++k)
            product[i] += a[(q * 8 + i % 64 / 8) * 4 + k] * b[(q * 4 + k) * 8 + i % 8];

    for (bool wide : {false, true})
        for (bool a_columns : {false, true})
            for (bool b_columns : {false, true}) {
                std::string layouts = std::string(a_columns ? "col." : "row.") + (b_columns ? "col" : "row");
                INFO(layouts << (wide ? " f32" : " f16"));
                Bench bench(volta_kernel(layouts, wide));
                auto out = bench.array<uint32_t>(32 * 8);
                auto lanes_a = pack(a, 8, 4, [&](uint32_t lane, uint32_t i) { return place_of_a(a_columns, lane, i); });
                auto lanes_b = pack(b, 4, 8, [&](uint32_t lane, uint32_t i) { return place_of_b(b_columns, lane, i); });
                bench.run("k", {1}, {32}, bench.array(lanes_a), bench.array(lanes_b), out);
                for (uint32_t lane = 0; lane < 32; ++lane)
                    for (uint32_t i = 0; i < 8; ++i) {
                        uint32_t row = lane % 4, column = i;
                        if (wide) row = (lane & 1) + (i & 2), column = (i & 4) + (lane & 2) + (i & 1);
                        if (is_upper(lane)) row += 4;
                        float expected = static_cast<float>(product[(quarter_of(lane) * 8 + row) * 8 + column]);
                        uint32_t word = out[lane * 8 + (wide ? i : i / 2)];
                        float got = wide ? std::bit_cast<float>(word)
                                         : half_to_float(static_cast<uint16_t>(word >> i % 2 * 16));
                        CHECK(got == expected);
                    }
            }
}
