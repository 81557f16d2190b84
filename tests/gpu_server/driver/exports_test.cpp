// Every name of cuda.h is there, so that programs can link it, and what the emulation lacks says so.
#include <fstream>
#include <sstream>

#include "fresh_driver.hpp"

namespace {

// The third word of a line of the table.
std::string symbol_of(const std::string& line) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string id, how, symbol;
    words >> id >> how >> symbol;
    return symbol;
}

std::string table_symbols() {
    std::ifstream table(TNR_CUDA_CALLS);
    std::string symbols;
    for (std::string line; std::getline(table, line);) symbols += symbol_of(line) + ' ';
    return symbols;
}

// Those of `names` that the driver lacks, and how many names there were if there are fewer than `least`.
std::string lacks(const LoadedDriver& driver, const std::string& names, int least) {
    std::istringstream all(names);
    std::string missing;
    int count = 0;
    for (std::string name; all >> name; ++count)
        if (!driver.get<int()>(name.c_str())) missing += name + " ";
    return (count < least ? "only " + std::to_string(count) + " names; " : "") + missing;
}

std::string unsupported(const LoadedDriver& driver) {
    CUipcMemHandle memory{};
    DRIVER_CALL(driver, cuInit)(0);
    void* found = nullptr;
    CUdriverProcAddressQueryResult status;
    CUresult got = DRIVER_CALL(driver, cuGetProcAddress)("cuCheckpointProcessLock", &found, 13000, 0, &status);
    bool same = found == reinterpret_cast<void*>(DRIVER_CALL(driver, cuCheckpointProcessLock));
    return std::to_string(DRIVER_CALL(driver, cuCheckpointProcessLock)(0, nullptr)) + " " +
           std::to_string(DRIVER_CALL(driver, cuIpcGetMemHandle)(&memory, 0)) + " " + std::to_string(got) + " " +
           std::to_string(status) + (same ? " same" : " other");
}

// The forms of a name that several versions of CUDA have.
std::string versions(const LoadedDriver& driver) {
    DRIVER_CALL(driver, cuInit)(0);
    auto find = [&](const char* name, int version, cuuint64_t flags) {
        void* found = nullptr;
        DRIVER_CALL(driver, cuGetProcAddress)(name, &found, version, flags, nullptr);
        return found;
    };
    auto symbol = [&](const char* name) { return reinterpret_cast<void*>(driver.get<int()>(name)); };
    std::string wrong;
    auto expect = [&](const char* name, int version, cuuint64_t flags, const char* expected) {
        if (find(name, version, flags) != (expected ? symbol(expected) : nullptr))
            wrong += std::string(name) + " at " + std::to_string(version) + "; ";
    };
    expect("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    expect("cuMemAlloc", 2000, 0, "cuMemAlloc");
    expect("cuCtxCreate", 12050, 0, "cuCtxCreate_v4");
    expect("cuCtxCreate", 12000, 0, "cuCtxCreate_v3");
    expect("cuStreamGetCaptureInfo", 12020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
           "cuStreamGetCaptureInfo_v2_ptsz");
    expect("cuMemcpyHtoD", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, "cuMemcpyHtoD_v2_ptds");
    expect("cuMemcpyBatchAsync", 12080, 0, "cuMemcpyBatchAsync");
    expect("cuMemAllocAsync", 11010, 0, nullptr);
    return wrong;
}

}  // namespace

TEST_CASE("every function of the driver API is exported", "[emulated]") {
    auto names = table_symbols();
    CHECK(in_fresh_process({}, [&](const LoadedDriver& driver) { return lacks(driver, names, 500); }) == "");
    CHECK(in_fresh_process({}, [](const LoadedDriver& driver) { return lacks(driver, TNR_STUB_SYMBOLS, 0); }) == "");
}

TEST_CASE("what is not emulated is found, and says that it is not supported", "[emulated]") {
    CHECK(in_fresh_process({}, unsupported) == "801 801 0 0 same");
}

TEST_CASE("each version of CUDA is given its own form of a function", "[emulated]") {
    CHECK(in_fresh_process({}, versions) == "");
}
