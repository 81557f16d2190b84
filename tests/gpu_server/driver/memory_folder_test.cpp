// TNR_EMULATED_MEMORY_FOLDER: memory that processes have in common, one after the other and at once.
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "fresh_driver.hpp"

namespace {

namespace fs = std::filesystem;

constexpr size_t page_bytes = size_t{2} << 20;
constexpr int pages = 16;
constexpr uint32_t secret = 0x5ec7e75e;

class Folder {
public:
    Folder() {
        char text[] = "/tmp/tnr-test-XXXXXX";
        REQUIRE(mkdtemp(text));
        path_ = text;
    }
    ~Folder() { fs::remove_all(path_); }
    Environment environment() const {
        return {{"TNR_EMULATED_MEMORY_MIB", std::to_string(pages * page_bytes >> 20)},
                {"TNR_EMULATED_MEMORY_FOLDER", path_}};
    }

private:
    fs::path path_;
};

void begin(const LoadedDriver& driver) {
    CUcontext context = nullptr;
    DRIVER_CALL(driver, cuInit)(0);
    DRIVER_CALL(driver, cuDevicePrimaryCtxRetain)(&context, 0);
    DRIVER_CALL(driver, cuCtxSetCurrent)(context);
}

// Page by page, as many as there are.
std::vector<CUdeviceptr> take_all(const LoadedDriver& driver) {
    std::vector<CUdeviceptr> taken;
    CUdeviceptr page = 0;
    while (DRIVER_CALL(driver, cuMemAlloc)(&page, page_bytes) == CUDA_SUCCESS) taken.push_back(page);
    return taken;
}

std::string plant(const LoadedDriver& driver) {
    begin(driver);
    CUdeviceptr plain = 0, mapped = 0;
    DRIVER_CALL(driver, cuMemAlloc)(&plain, 3 * page_bytes);
    DRIVER_CALL(driver, cuMemsetD32)(plain, secret, 3 * page_bytes / sizeof secret);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (auto shared : {CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) {
        CUmemGenericAllocationHandle memory = 0;
        properties.requestedHandleTypes = shared;
        DRIVER_CALL(driver, cuMemCreate)(&memory, page_bytes, &properties, 0);
        DRIVER_CALL(driver, cuMemAddressReserve)(&mapped, page_bytes, 0, 0, 0);
        DRIVER_CALL(driver, cuMemMap)(mapped, page_bytes, 0, memory, 0);
        DRIVER_CALL(driver, cuMemSetAccess)(mapped, page_bytes, &access, 1);
        if (DRIVER_CALL(driver, cuMemsetD32)(mapped, secret, page_bytes / sizeof secret)) return "not mapped";
    }
    return DRIVER_CALL(driver, cuCtxSynchronize)() == CUDA_SUCCESS ? "planted" : "failed";
}

// Pages that hold it, of all that there are.
std::string look(const LoadedDriver& driver) {
    begin(driver);
    auto taken = take_all(driver);
    std::vector<uint32_t> words(page_bytes / sizeof secret);
    auto holds = [&](CUdeviceptr page) {
        DRIVER_CALL(driver, cuMemcpyDtoH)(words.data(), page, page_bytes);
        return std::count(words.begin(), words.end(), secret) == static_cast<ptrdiff_t>(words.size());
    };
    auto found = std::count_if(taken.begin(), taken.end(), holds);
    return std::to_string(found) + " of " + std::to_string(taken.size());
}

// What two processes can have at once, and one of them once the other has been killed.
std::string share(const LoadedDriver& driver) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const pid_t other = fork();  // before either has begun
    if (other == 0) {
        begin(driver);
        CUdeviceptr half = 0;
        char done = DRIVER_CALL(driver, cuMemAlloc)(&half, pages / 2 * page_bytes) == CUDA_SUCCESS;
        if (write(ends[1], &done, 1) == 1) pause();
        _exit(1);
    }
    char done = 0;
    if (read(ends[0], &done, 1) != 1 || !done) return "the other has none";
    begin(driver);
    auto beside = take_all(driver).size();
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
    return std::to_string(beside) + " and " + std::to_string(take_all(driver).size());
}

}  // namespace

TEST_CASE("memory in a folder outlives who wrote to it", "[emulated]") {
    Folder folder;
    CHECK(in_fresh_process(folder.environment(), look) == "0 of 16");
    CHECK(in_fresh_process(folder.environment(), plant) == "planted");
    CHECK(in_fresh_process(folder.environment(), look) == "5 of 16");
}

TEST_CASE("memory in a folder is one process's at a time", "[emulated]") {
    CHECK(in_fresh_process(Folder().environment(), share) == "8 and 8");
}
