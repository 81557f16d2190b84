// What tests of ldmatrix and stmatrix have in common: 512 bytes in shared memory, a row of 16 for each lane.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu_server/ptx/bench.hpp"

namespace tnr::ptx::test {

// Each lane gives a row of 16 bytes; then the instruction, whose registers are %r0 to %r3 and whose address is [%t], and what
// it leaves in them and in shared memory.
inline std::string tiles_kernel(const std::string& instruction) {
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

// 512 bytes that the lanes have then, and the 512 of shared memory.
inline std::vector<uint8_t> through_tiles(const std::string& instruction, const std::vector<uint8_t>& in) {
    Bench bench(tiles_kernel(instruction));
    auto out = bench.array<uint8_t>(1024);
    bench.run("k", {1}, {32}, bench.array(in), out);
    return {out.data(), out.data() + out.size};
}

}  // namespace tnr::ptx::test
