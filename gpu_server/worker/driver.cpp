// See driver.hpp.
#include "gpu_server/worker/driver.hpp"

#include <dlfcn.h>

namespace tnr::worker {

static DriverTable& table() {
    static DriverTable table;
    return table;
}

const DriverTable& driver() {
    return table();
}

bool is_captured(CUstream stream) {
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver().cuStreamIsCapturing && driver().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult query_way(CUstream stream) {
    auto result = driver().cuStreamQuery(stream);
    unsigned flags = 0;
    bool alone = result != CUDA_SUCCESS || !stream || stream == CU_STREAM_LEGACY ||
                 driver().cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS || (flags & CU_STREAM_NON_BLOCKING) != 0;
    if (alone) return result;
    // A question would spoil the capture of any stream that waits for the null stream; this one does not.
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver().cuStreamIsCapturing(CU_STREAM_LEGACY, &status) != CUDA_SUCCESS) return CUDA_ERROR_NOT_READY;
    return driver().cuStreamQuery(CU_STREAM_LEGACY);
}

std::string name_of(CUresult result) {
    const char* name = nullptr;
    if (driver().cuGetErrorName && driver().cuGetErrorName(result, &name) == CUDA_SUCCESS && name) return name;
    return "CUresult " + std::to_string(result);
}

Result<> load_driver(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return Error{Error::Kind::internal, std::string("cannot load the driver: ") + dlerror(),
                     "name it with --driver, or use --emulate h100"};
    fill_driver_table(table(), dlsym, library);
    if (!driver().cuInit || !driver().cuLibraryLoadData || !driver().cuMemAddressReserve)
        return Error{Error::Kind::internal, path + " is not a CUDA driver of version 12.4 or newer"};
    if (auto result = driver().cuInit(0); result != CUDA_SUCCESS)
        return Error{Error::Kind::internal, "cuInit of " + path + " failed: " + name_of(result)};
    return Ok{};
}

}  // namespace tnr::worker
