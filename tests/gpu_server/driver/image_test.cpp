#include "fresh_driver.hpp"

namespace {

constexpr char unsupported[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k() {\n  no.such.instruction %r1;\n  ret;\n}\n";

std::string load(const LoadedDriver& driver, const void* image) {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    DRIVER_CALL(driver, cuInit)(0);
    DRIVER_CALL(driver, cuDevicePrimaryCtxRetain)(&context, 0);
    DRIVER_CALL(driver, cuCtxSetCurrent)(context);
    char log[512] = {};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    CUresult error = DRIVER_CALL(driver, cuModuleLoadDataEx)(&module, image, 2, options, values);
    using LastError = const char*();
    std::string last = driver.get<LastError>("tnr_emulated_last_error")();
    return std::to_string(error) + "|" + log + "|" + last;
}

}  // namespace

TEST_CASE("an instruction that is not emulated fails the load, with its line", "[emulated]") {
    std::string answer = in_fresh_process({}, [](const LoadedDriver& driver) { return load(driver, unsupported); });
    CHECK(answer.starts_with(std::to_string(CUDA_ERROR_INVALID_PTX) + "|"));
    CHECK(answer.find("line 5") != std::string::npos);
    CHECK(answer.find("no.such.instruction") != std::string::npos);
    auto first = answer.find('|'), second = answer.rfind('|');
    CHECK(answer.substr(first + 1, second - first - 1) == answer.substr(second + 1));
}

TEST_CASE("what is no code at all is an invalid image", "[emulated]") {
    std::string answer = in_fresh_process({}, [](const LoadedDriver& driver) { return load(driver, "\x01garbage"); });
    CHECK(answer.starts_with(std::to_string(CUDA_ERROR_INVALID_IMAGE) + "|"));
}
