#include <unistd.h>

#include <algorithm>
#include <vector>

#include "fresh_driver.hpp"

namespace {

constexpr char unsupported_code[] =
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

// What the driver writes on stderr when a program loads code and looks at nothing.
std::string said(const LoadedDriver& driver, const std::vector<const char*>& images, bool reads_log) {
    int ends[2], before = dup(STDERR_FILENO);
    if (before < 0 || pipe(ends) != 0) return "no pipe";
    dup2(ends[1], STDERR_FILENO);
    for (const char* image : images) {
        CUcontext context = nullptr;
        CUmodule module = nullptr;
        DRIVER_CALL(driver, cuInit)(0);
        DRIVER_CALL(driver, cuDevicePrimaryCtxRetain)(&context, 0);
        DRIVER_CALL(driver, cuCtxSetCurrent)(context);
        if (reads_log)
            load(driver, image);
        else
            DRIVER_CALL(driver, cuModuleLoadData)(&module, image);
    }
    dup2(before, STDERR_FILENO);
    close(ends[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
    return text;
}

// Its quotes of the code must not get out of the line.
constexpr char hostile[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k() {\n  call \"\x1b[2J\r\n\";\n  ret;\n}\n";

}  // namespace

TEST_CASE("a program that does not ask why its code does not load is told once, in a line", "[emulated]") {
    auto twice = in_fresh_process({}, [](const LoadedDriver& driver) {
        return said(driver, {unsupported_code, unsupported_code}, false);
    });
    CHECK(twice ==
          "emulated GPU: cannot load code: line 5: no.such.instruction is not supported by the emulated GPU\n");
    auto escapes = in_fresh_process({}, [](const LoadedDriver& driver) { return said(driver, {hostile}, false); });
    CHECK(escapes.starts_with("emulated GPU: cannot load code: "));
    CHECK(std::count_if(escapes.begin(), escapes.end(), [](unsigned char c) { return c < ' '; }) == 1);
    CHECK(escapes.ends_with("\n"));
}

TEST_CASE("nothing is said to a program that reads the log, and to nobody where TNR_LOG is off", "[emulated]") {
    CHECK(in_fresh_process({}, [](const LoadedDriver& driver) { return said(driver, {unsupported_code}, true); }) ==
          "");
    for (const char* level : {"off", "none"})
        CHECK(in_fresh_process({{"TNR_LOG", level}}, [](const LoadedDriver& driver) {
                  return said(driver, {unsupported_code}, false);
              }) == "");
}

TEST_CASE("an instruction that is not emulated fails the load, with its line", "[emulated]") {
    std::string answer =
        in_fresh_process({}, [](const LoadedDriver& driver) { return load(driver, unsupported_code); });
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
