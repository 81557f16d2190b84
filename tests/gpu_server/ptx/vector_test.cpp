// Vectors of registers are read and written as one word, for all lanes whose memory is found at one look (ops_memory.cpp).
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

constexpr uint32_t vectors = 32;

// Thread t takes the vector 7 t % 32 from `in` to `space` and from there to its place in `out`, if t % 4 is not `without`.
// %p, where the room is, is among the elements that are read.
std::string vector_kernel(const std::string& space, const std::string& vector, const std::string& elements,
                          uint32_t bytes) {
    const auto size = std::to_string(bytes);
    auto with = [&](std::string text) {
        for (auto [name, value] :
             {std::pair{std::string("VECTOR"), vector}, {"ELEMENTS", elements}, {"SIZE", size}, {"SPACE", space}})
            for (size_t at; (at = text.find(name)) != std::string::npos;) text.replace(at, name.size(), value);
        return text;
    };
    const std::string room = space == ".local" ? "mov.u64 %p, own;" : "mov.u64 %p, room;";
    return with(R"(
.version 8.0
.target sm_80
.address_size 64
.shared .align 32 .b8 room[1024];
.entry k(.param .u64 in, .param .u64 out, .param .u32 without)
{
    .local .align 32 .b8 own[1024];
    .reg .u64 %i, %o, %p, %x, %b; .reg .u32 %t, %s, %w, %a, %c, %d; .reg .b16 %h<4>; .reg .pred %q;
    ld.param.u64 %i, [in]; ld.param.u64 %o, [out]; ld.param.u32 %w, [without];
    mov.u32 %t, %tid.x; mul.lo.u32 %s, %t, 7; and.b32 %s, %s, 31;
    and.b32 %a, %t, 3; setp.ne.u32 %q, %a, %w;
    mul.wide.u32 %b, %t, SIZE; add.u64 %o, %o, %b;
    mul.wide.u32 %b, %s, SIZE; add.u64 %i, %i, %b;
    )" + room + (space.empty() ? "cvta.shared.u64 %p, %p;" : "") +
                R"(
    add.u64 %b, %p, %b;
    @%q ld.globalVECTOR {ELEMENTS}, [%i];
    @%q stSPACEVECTOR [%b], {ELEMENTS};
    bar.sync 0;
    mov.u64 %p, %b;
    @%q ldSPACEVECTOR {ELEMENTS}, [%p];
    @%q st.globalVECTOR [%o], {ELEMENTS};
    ret;
})");
}

}  // namespace

TEST_CASE("vectors go through every kind of memory, for all lanes and for some", "[ptx]") {
    for (const char* space : {"", ".shared", ".local"})
        for (auto [vector, elements, words] : {std::tuple{".v2.b32", "%c, %d", 2u},
                                               {".v4.b32", "%c, %d, %a, %s", 4u},
                                               {".v2.b64", "%p, %x", 4u},
                                               {".v4.b16", "%h0, %h1, %h2, %h3", 2u}}) {
            Bench bench(vector_kernel(space, vector, elements, words * 4));
            auto in = bench.array<uint32_t>(vectors * words);
            for (uint32_t k = 0; k < in.size; ++k) in[k] = k * 0x01234567 + 1;
            for (uint32_t without : {1u, 4u}) {
                INFO(space << vector << " without " << without);
                auto out = bench.array<uint32_t>(in.size);
                bench.run("k", {1}, {vectors}, in, out, without);
                for (uint32_t k = 0; k < out.size; ++k) {
                    auto thread = k / words, from = thread * 7 % vectors;
                    CHECK(out[k] == (thread % 4 == without ? 0 : in[from * words + k % words]));
                }
                // The vector that only part of the lanes has memory for, and one that is not aligned.
                auto short_of = bench.array<uint32_t>(in.size - 1);
                CHECK(bench.launch("k", {1}, {vectors}, {}, in, short_of, without).outcome == Outcome::illegal_address);
                CHECK(bench.launch("k", {1}, {vectors}, {}, in.address + 4, out, without).outcome ==
                      Outcome::misaligned_address);
            }
        }
}
