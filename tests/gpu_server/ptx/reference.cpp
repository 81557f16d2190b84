// See reference.hpp.
#include "tests/gpu_server/ptx/reference.hpp"

#include <cmath>
#include <random>

#include "tests/gpu_server/ptx/bench.hpp"

namespace tnr::ptx::test {
namespace {

uint64_t any_word(std::mt19937_64& random) {
    static constexpr uint64_t corners[] = {0,
                                           1,
                                           ~0ull,
                                           0x7fffffff,
                                           0x80000000,
                                           0x7fffffffffffffff,
                                           0x8000000000000000,
                                           0x7f800000,
                                           0xff800000,
                                           0x7fc01234,
                                           0xffc00001,
                                           0x7f7fffff,
                                           1u << 22,
                                           0x3f800000,
                                           0xbf000000,
                                           0x7ff0000000000000,
                                           0xfff0000000000000,
                                           0x7ff8000000000001,
                                           0x41dfffffffc00000,
                                           0x41e0000000000000,
                                           0xc1e0000000200000,
                                           0x43e0000000000000,
                                           0x4f000000,
                                           0xcf000000,
                                           0x477fe000,
                                           0x477ff000,
                                           0x33000000,
                                           0x33000001,
                                           0x3f7fffff,
                                           0x8000,
                                           0x7c00,
                                           0xfc00,
                                           0x7e00,
                                           0x3ff};
    uint64_t word = random();
    switch (random() % 6) {
        case 0:
            return corners[word % std::size(corners)];
        case 1:
            return word % 70;
        case 2:
            return word >> random() % 64;
        case 3:  // a float of the size that conversions to short integers care about
            return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(word)) * 0x1p-24f);
        case 4:  // the same in double, up to 2^65
            return std::bit_cast<uint64_t>(
                std::ldexp(static_cast<double>(static_cast<int64_t>(word)), static_cast<int>(random() % 70) - 68));
        default:
            return word;
    }
}

}  // namespace

void agrees(const std::string& body, const Expectation& reference) {
    std::string text =
        ".reg .b64 %in, %at, %x, %y, %z, %o; .reg .b32 %t, %a, %b, %c, %d; .reg .b16 %h, %i, %j, %k; .reg .pred %p, %q;"
        ".reg .f32 %f, %g, %l; .reg .f64 %u, %v, %w; .reg .b8 %m;\n"
        "ld.param.u64 %in, [p0]; mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 32; add.u64 %in, %in, %at;\n"
        "ld.global.b64 %x, [%in]; ld.global.b64 %y, [%in+8]; ld.global.b64 %z, [%in+16]; mov.b64 %o, 0;\n"
        "cvt.u32.u64 %a, %x; cvt.u32.u64 %b, %y; cvt.u32.u64 %c, %z; cvt.u16.u64 %h, %x; cvt.u16.u64 %i, %y;\n"
        "cvt.u16.u64 %j, %z; mov.b64 %u, %x; mov.b64 %v, %y; mov.b64 %w, %z; mov.b32 %f, %a; mov.b32 %g, %b;\n"
        "mov.b32 %l, %c;\n" +
        body + "\nst.global.b64 [%in+24], %o;";
    constexpr uint32_t threads = 512;
    std::mt19937_64 random(body.size());
    std::vector<OperandRow> all(threads);
    for (auto& one : all) one = {any_word(random), any_word(random), any_word(random)};
    INFO(body);
    Bench bench(module_of(text, 1));
    auto array = bench.array(all);
    bench.run("k", {1}, {threads}, array);
    // Of all, the first that differs; if none does, the last.
    uint32_t k = 0;
    while (k + 1 < threads && array[k].result == reference(array[k])) ++k;
    auto& got = array[k];
    INFO(std::hex << "x=" << got.x << " y=" << got.y << " z=" << got.z);
    CHECK(got.result == reference(got));
}

}  // namespace tnr::ptx::test
