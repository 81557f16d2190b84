// Kernels that launch kernels: what is refused, and how far it goes. What they compute: tests/cuda_programs.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

const std::string declarations = R"(.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2(.param .b64 f, .param .align 4 .b8 g[12],
    .param .align 4 .b8 b[12], .param .b32 s);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 p, .param .b64 s);
)";

// Asks for a launch of `kernel` with blocks of %n threads; the parameters' address is in %b.
std::string prepare(const std::string& kernel) {
    return "{ .param .b64 f; .param .align 4 .b8 g[12]; .param .align 4 .b8 k[12]; .param .b32 s; .param .b64 r;\n"
           "mov.u64 %q, " +
           kernel +
           "; st.param.b64 [f], %q; st.param.b32 [g], 1; st.param.b32 [g+4], 1; st.param.b32 [g+8], 1;\n"
           "st.param.b32 [k], %n; st.param.b32 [k+4], 1; st.param.b32 [k+8], 1; st.param.b32 [s], 0;\n"
           "call.uni (r), __cudaCDP2GetParameterBufferV2, (f, g, k, s); ld.param.b64 %b, [r]; }\n";
}
// Launches it in the null stream; the answer is in %x.
const std::string launch_it =
    "{ .param .b64 p; .param .b64 s; .param .b32 r; st.param.b64 [p], %b; st.param.b64 [s], 0;\n"
    "call.uni (r), __cudaCDP2LaunchDeviceV2, (p, s); ld.param.b32 %x, [r]; }\n";
const std::string begin =
    "(.param .u64 out, .param .u32 threads)\n{ .reg .b32 %x, %n, %d; .reg .b64 %p, %q, %b; .reg .pred %no;\n"
    "ld.param.u64 %p, [out]; ld.param.u32 %n, [threads];\n";

}  // namespace

TEST_CASE("a kernel launches itself, to the depth that hardware allows", "[ptx][children]") {
    Bench bench(declarations + ".visible .entry nest" + begin + "atom.global.add.u32 %d, [%p], 1;\n" + prepare("nest") +
                "st.u64 [%b], %p; st.u32 [%b+8], %n;\n" + launch_it +
                "setp.eq.u32 %no, %x, 0; @%no ret; st.global.u32 [%p+4], %x; st.global.u32 [%p+8], %d; ret; }\n");
    auto out = bench.array<uint32_t>(3);
    bench.run("nest", {1}, {1}, out, 1u);
    CHECK(out[0] == 25);
    CHECK(out[1] == 65);  // cudaErrorLaunchMaxDepthExceeded
    CHECK(out[2] == 24);
}

TEST_CASE("what cannot be launched has no parameters", "[ptx][children]") {
    Bench bench(declarations + ".visible .entry child() { ret; }\n.visible .global .align 8 .u64 data;\n" +
                ".visible .entry refused" + begin + prepare("child") + "st.global.u64 [%p], %b;\n" + prepare("data") +
                "st.global.u64 [%p+8], %b; mov.u64 %b, %p;\n" + launch_it +
                "st.global.u32 [%p+16], %x; mov.u64 %b, 0;\n" + launch_it + "st.global.u32 [%p+20], %x; ret; }\n");
    for (uint32_t threads : {0u, 2000u}) {
        auto out = bench.array<uint64_t>(3);
        out[0] = out[1] = 7;
        bench.run("refused", {1}, {1}, out, threads);
        CHECK(out[0] == 0);
        CHECK(out[1] == 0);                        // it is no kernel
        CHECK(out[2] == (uint64_t{1} << 32 | 1));  // cudaErrorInvalidValue, twice
    }
}

TEST_CASE("a launch happens once, and a fault of a child is its parent's", "[ptx][children]") {
    Bench bench(declarations + ".visible .entry bad(.param .u64 at) { .reg .b64 %p; ld.param.u64 %p, [at];\n" +
                "st.global.u32 [%p], 1; ret; }\n.visible .entry parent" + begin + prepare("bad") +
                "st.u64 [%b], %p;\n" + launch_it + launch_it + "st.global.u32 [%p+4], %x; ret; }\n" +
                ".visible .entry faulty" + begin + prepare("bad") + "mov.u64 %q, 8; st.u64 [%b], %q;\n" + launch_it +
                "st.global.u32 [%p], 5; ret; }\n");
    auto out = bench.array<uint32_t>(2);
    bench.run("parent", {1}, {1}, out, 1u);
    CHECK(out[0] == 1);
    CHECK(out[1] == 1);  // the second time there is nothing to launch
    auto report = bench.launch("faulty", {1}, {1}, {}, out, 1u);
    CHECK(report.outcome == Outcome::illegal_address);
    CHECK(report.detail.find("bad") != std::string::npos);
    CHECK(out[0] == 5);  // the parent itself had ended well
}

TEST_CASE("parameters that are never launched cost nothing for long", "[ptx][children]") {
    Bench bench(declarations + ".visible .entry child(.param .align 4 .b8 large[4000]) { ret; }\n" +
                ".visible .entry forgetful" + begin + prepare("child") + "st.global.u64 [%p], %b; ret; }\n");
    auto out = bench.array<uint64_t>(1);
    for (int i = 0; i < 20; ++i) {  // 1,024 threads of 4,000 bytes: the heap has room for sixteen such grids
        bench.run("forgetful", {1}, {1024}, out, 1u);
        REQUIRE(out[0] != 0);
    }
}

TEST_CASE("a kernel cannot free the parameters of its launches", "[ptx][children]") {
    Bench bench(declarations + ".extern .func free(.param .b64 p);\n" +
                ".visible .entry child(.param .u64 at) { .reg .b64 %p; ld.param.u64 %p, [at];\n"
                "st.global.u32 [%p], 3; ret; }\n.visible .entry parent" +
                begin + prepare("child") +
                "st.u64 [%b], %p; { .param .b64 p; st.param.b64 [p], %b; call.uni free, (p); }\n" + launch_it +
                "{ .param .b64 p; st.param.b64 [p], %b; call.uni free, (p); } ret; }\n");
    auto out = bench.array<uint32_t>(1);
    bench.run("parent", {1}, {1}, out, 1u);
    CHECK(out[0] == 3);
}

TEST_CASE("a kernel's fill of what is no memory is a fault of its grid", "[ptx][children]") {
    Bench bench(declarations + ".extern .func (.param .b32 r) __cudaCDP2MemsetAsync(.param .b64 t, .param .b32 v,\n" +
                "    .param .b64 n, .param .b64 s);\n.visible .entry fill" + begin +
                "{ .param .b64 t; .param .b32 v; .param .b64 c; .param .b64 s; .param .b32 r; cvt.u64.u32 %q, %n;\n"
                "st.param.b64 [t], %p; st.param.b32 [v], 2; st.param.b64 [c], %q; st.param.b64 [s], 0;\n"
                "call.uni (r), __cudaCDP2MemsetAsync, (t, v, c, s); ld.param.b32 %x, [r]; }\n"
                "st.global.u32 [%p], 7; ret; }\n");
    auto out = bench.array<uint32_t>(2);
    bench.run("fill", {1}, {1}, out, 8u);
    CHECK(out[0] == 0x02020202);  // after the kernel's own
    CHECK(out[1] == 0x02020202);
    auto report = bench.launch("fill", {1}, {1}, {}, out, 9u);
    CHECK(report.outcome == Outcome::illegal_address);
    CHECK(report.detail.find("9 bytes") != std::string::npos);
    CHECK(out[0] == 7);
}

TEST_CASE("a kernel orders its launches by events, but not in the streams that nothing waits for", "[ptx][children]") {
    auto event_of = [](const std::string& stream) {
        return "{ .param .b64 a; .param .b64 b; .param .b32 f; .param .b32 r; mov.u64 %b, " + stream +
               "; st.param.b64 [a], %q; st.param.b64 [b], %b;\n"
               "call.uni (r), __cudaCDP2EventRecord, (a, b); ld.param.b32 %x, [r]; st.global.u32 [%p], %x;\n"
               "st.param.b64 [a], %b; st.param.b64 [b], %q; st.param.b32 [f], 0;\n"
               "call.uni (r), __cudaCDP2StreamWaitEvent, (a, b, f); ld.param.b32 %x, [r];\n"
               "st.global.u32 [%p+4], %x; add.u64 %p, %p, 8; }\n";
    };
    Bench bench(
        declarations + ".extern .func (.param .b32 r) __cudaCDP2EventCreateWithFlags(.param .b64 e,\n" +
        "    .param .b32 f);\n.extern .func (.param .b32 r) __cudaCDP2EventDestroy(.param .b64 e);\n"
        ".extern .func (.param .b32 r) __cudaCDP2EventRecord(.param .b64 e, .param .b64 s);\n"
        ".extern .func (.param .b32 r) __cudaCDP2StreamWaitEvent(.param .b64 s, .param .b64 e, .param .b32 f);\n"
        ".visible .entry events" +
        begin +
        "{ .param .b64 e; .param .b32 f; .param .b32 r; st.param.b64 [e], %p; st.param.b32 [f], 2;\n"
        "call.uni (r), __cudaCDP2EventCreateWithFlags, (e, f); ld.param.b32 %x, [r]; }\n"
        "ld.global.u64 %q, [%p]; st.global.u32 [%p+8], %x; add.u64 %p, %p, 12;\n" +
        event_of("0") + event_of("3") + event_of("4") +
        "{ .param .b64 e; .param .b32 r; st.param.b64 [e], %q; call.uni (r), __cudaCDP2EventDestroy, (e);\n"
        "ld.param.b32 %x, [r]; st.global.u32 [%p], %x; } ret; }\n");
    auto out = bench.array<uint32_t>(10);
    out[9] = 7;
    bench.run("events", {1}, {1}, out, 1u);
    CHECK((out[0] | out[1]) != 0);  // an event
    CHECK((out[2] | out[3] | out[4]) == 0);
    for (int i = 5; i < 9; ++i) CHECK(out[i] == 1);  // cudaErrorInvalidValue
    CHECK(out[9] == 0);
}

TEST_CASE(
    "the device runtime that CUDA 11's compiler brings is replaced, and what is not here faults when it is called",
    "[ptx][children]") {
    const std::string head = ".version 7.8\n.target sm_80\n.address_size 64\n";
    const std::string library = head + R"(
.extern .func (.param .b32 r) cnpGetLastError(.param .b32 a);
.extern .func (.param .b32 r) cnpGetDevice(.param .b32 a);
.extern .func (.param .b32 r) __cuda_syscall_CGS_get_size(.param .b32 a);
.visible .func (.param .b32 r) cudaGetLastError()
{ .reg .b32 %x; .param .b32 a; .param .b32 b; st.param.b32 [a], 5; call.uni (b), cnpGetLastError, (a);
  ld.param.b32 %x, [b]; st.param.b32 [r], %x; ret; }
.visible .func (.param .b32 r) cudaDeviceSynchronize()
{ .reg .b32 %x; .param .b32 a; .param .b32 b; st.param.b32 [a], 5; call.uni (b), cnpGetDevice, (a);
  ld.param.b32 %x, [b]; st.param.b32 [r], %x; ret; }
.visible .func (.param .b32 r) cudaCGGetSize()
{ .param .b32 a; .param .b32 b; st.param.b32 [a], 5; call.uni (b), __cuda_syscall_CGS_get_size, (a); ret; })";
    const std::string program = head + R"(
.extern .func (.param .b32 r) cudaGetLastError();
.extern .func (.param .b32 r) cudaDeviceSynchronize();
.visible .entry good(.param .u64 out)
{ .reg .b64 %p; .reg .b32 %x; ld.param.u64 %p, [out];
  { .param .b32 r; call.uni (r), cudaGetLastError; ld.param.b32 %x, [r]; } st.global.u32 [%p], %x; ret; }
.visible .entry bad()
{ .param .b32 r; call.uni (r), cudaDeviceSynchronize; ret; })";
    Bench bench(std::vector<Source>{{"program", program}, {"library", library}});
    auto out = bench.array<uint32_t>(1);
    out[0] = 7;
    bench.run("good", {1}, {1}, out);
    CHECK(out[0] == 0);
    auto report = bench.launch("bad", {1}, {1}, {});
    CHECK(report.outcome == Outcome::illegal_instruction);
    CHECK(report.detail.find("'cnpGetDevice' of the device runtime before CUDA 12") != std::string::npos);
}
