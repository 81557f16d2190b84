#include "gpu_client/cuda/jit_options.hpp"

#include <chrono>
#include <thread>

#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace {

float milliseconds(void* value) {
    return std::bit_cast<float>(static_cast<uint32_t>(value_of(value)));
}

}  // namespace

TEST_CASE("a program that asks how long compiling takes is told", "[jit]") {
    using namespace std::chrono_literals;
    char garbage = 0;
    CUjit_option options[] = {CU_JIT_MAX_REGISTERS, CU_JIT_WALL_TIME};
    void* values[] = {handle_of<void*>(32), &garbage};
    JitLogs logs({2, options, values});
    CHECK(logs.wanted());  // so a library is loaded within the call
    std::this_thread::sleep_for(20ms);
    logs.write({"", ""});
    const float first = milliseconds(values[1]);
    CHECK(first >= 20);
    CHECK(value_of(values[0]) == 32);

    // The program's own time between two calls does not count; the calls' times add up.
    std::this_thread::sleep_for(500ms);
    const auto begin = std::chrono::steady_clock::now();
    logs.begin_call();
    std::this_thread::sleep_for(20ms);
    logs.write({"", ""});
    const std::chrono::duration<float, std::milli> second = std::chrono::steady_clock::now() - begin;
    CHECK(milliseconds(values[1]) >= first + 20);
    CHECK(milliseconds(values[1]) <= first + second.count() + 1);
}

TEST_CASE("a program that does not ask how long compiling takes is not made to wait", "[jit]") {
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void* value = handle_of<void*>(32);
    JitLogs logs({1, &option, &value});
    CHECK(!logs.wanted());
    logs.write({"", ""});
    CHECK(value_of(value) == 32);
}
