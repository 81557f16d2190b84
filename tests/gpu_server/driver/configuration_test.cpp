#include <set>
#include <sstream>

#include "fresh_driver.hpp"

namespace {

// "NAME 2048MiB UUID;" for each device, or the number of the error that cuInit gives.
std::string devices(const LoadedDriver& driver) {
    if (CUresult error = DRIVER_CALL(driver, cuInit)(0)) return "error " + std::to_string(error);
    int count = 0;
    DRIVER_CALL(driver, cuDeviceGetCount)(&count);
    std::string answer;
    for (int i = 0; i < count; ++i) {
        char name[128] = {};
        size_t bytes = 0;
        DRIVER_CALL(driver, cuDeviceGetName)(name, sizeof(name), i);
        DRIVER_CALL(driver, cuDeviceTotalMem)(&bytes, i);
        answer += std::string(name) + " " + std::to_string(bytes >> 20) + "MiB;";
    }
    return answer;
}

std::string identities(const LoadedDriver& driver) {
    if (CUresult error = DRIVER_CALL(driver, cuInit)(0)) return "error " + std::to_string(error);
    int count = 0;
    DRIVER_CALL(driver, cuDeviceGetCount)(&count);
    std::ostringstream answer;
    for (int i = 0; i < count; ++i) {
        CUuuid uuid;
        char pci[32] = {};
        DRIVER_CALL(driver, cuDeviceGetUuid)(&uuid, i);
        DRIVER_CALL(driver, cuDeviceGetPCIBusId)(pci, sizeof(pci), i);
        for (char byte : uuid.bytes) answer << std::hex << (byte & 0xff) << '.';
        answer << ' ' << pci << '\n';
    }
    return answer.str();
}

// How many MiB can be allocated, one by one.
std::string allocatable(const LoadedDriver& driver) {
    CUcontext context = nullptr;
    DRIVER_CALL(driver, cuInit)(0);
    DRIVER_CALL(driver, cuDevicePrimaryCtxRetain)(&context, 0);
    DRIVER_CALL(driver, cuCtxSetCurrent)(context);
    int count = 0;
    CUdeviceptr address;
    CUresult error;
    while ((error = DRIVER_CALL(driver, cuMemAlloc)(&address, 1 << 20)) == CUDA_SUCCESS) ++count;
    return std::to_string(count) + " then " + std::to_string(error);
}

}  // namespace

TEST_CASE("the environment says which GPUs there are", "[emulated]") {
    CHECK(in_fresh_process({}, devices) == "NVIDIA H100 (emulated) 2048MiB;");
    CHECK(in_fresh_process({{"TNR_EMULATED_GPUS", "t4:2,l40s"}, {"TNR_EMULATED_MEMORY_MIB", "64"}}, devices) ==
          "Tesla T4 (emulated) 64MiB;Tesla T4 (emulated) 64MiB;NVIDIA L40S (emulated) 64MiB;");
}

TEST_CASE("what cannot be understood is no device, not a guess", "[emulated]") {
    std::string none = "error " + std::to_string(CUDA_ERROR_NO_DEVICE);
    for (const char* text : {"h101", "h100:", "h100:x", "h100:33", ",", "h100,,t4", "h100:0"}) {
        INFO(text);
        CHECK(in_fresh_process({{"TNR_EMULATED_GPUS", text}}, devices) == none);
    }
    for (const char* text : {"0", "-1", "12MiB", "99999999999999999999"}) {
        INFO(text);
        CHECK(in_fresh_process({{"TNR_EMULATED_MEMORY_MIB", text}}, devices) == none);
    }
}

TEST_CASE("devices keep their identities from process to process", "[emulated]") {
    Environment two{{"TNR_EMULATED_GPUS", "h100:2"}};
    std::string first = in_fresh_process(two, identities);
    CHECK(first == in_fresh_process(two, identities));
    std::istringstream lines(first);
    std::set<std::string> seen;
    for (std::string word; lines >> word;) CHECK(seen.insert(word).second);
    CHECK(seen.size() == 4);
    two["TNR_EMULATED_SEED"] = "another node";
    CHECK(first != in_fresh_process(two, identities));
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses and orders as the driver does", "[emulated]") {
    auto names = [](const char* visible) {
        return in_fresh_process(
            {{"TNR_EMULATED_GPUS", "t4,l4"}, {"TNR_EMULATED_MEMORY_MIB", "64"}, {"CUDA_VISIBLE_DEVICES", visible}},
            devices);
    };
    CHECK(names("1,0") == "NVIDIA L4 (emulated) 64MiB;Tesla T4 (emulated) 64MiB;");
    CHECK(names("1") == "NVIDIA L4 (emulated) 64MiB;");
    CHECK(names("0,7,1") == "Tesla T4 (emulated) 64MiB;");
    CHECK(names("") == "error " + std::to_string(CUDA_ERROR_NO_DEVICE));
}

TEST_CASE("memory ends where the configuration says", "[emulated]") {
    std::string end = " then " + std::to_string(CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(in_fresh_process({{"TNR_EMULATED_MEMORY_MIB", "16"}}, allocatable) == "16" + end);
    CHECK(in_fresh_process({{"TNR_EMULATED_MEMORY_MIB", "100"}}, allocatable) == "100" + end);
}
