// Names and texts of error codes.
#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("every error code has the name that cuda.h gives it", "[error]") {
    struct Known {
        CUresult code;
        const char* name;
    };
#define KNOWN(code) \
    { code, #code }
    const Known known[] = {KNOWN(CUDA_SUCCESS),
                           KNOWN(CUDA_ERROR_INVALID_VALUE),
                           KNOWN(CUDA_ERROR_OUT_OF_MEMORY),
                           KNOWN(CUDA_ERROR_NOT_INITIALIZED),
                           KNOWN(CUDA_ERROR_DEINITIALIZED),
                           KNOWN(CUDA_ERROR_STUB_LIBRARY),
                           KNOWN(CUDA_ERROR_DEVICE_UNAVAILABLE),
                           KNOWN(CUDA_ERROR_NO_DEVICE),
                           KNOWN(CUDA_ERROR_INVALID_DEVICE),
                           KNOWN(CUDA_ERROR_INVALID_IMAGE),
                           KNOWN(CUDA_ERROR_INVALID_CONTEXT),
                           KNOWN(CUDA_ERROR_MAP_FAILED),
                           KNOWN(CUDA_ERROR_NO_BINARY_FOR_GPU),
                           KNOWN(CUDA_ERROR_ALREADY_MAPPED),
                           KNOWN(CUDA_ERROR_NOT_MAPPED),
                           KNOWN(CUDA_ERROR_ECC_UNCORRECTABLE),
                           KNOWN(CUDA_ERROR_UNSUPPORTED_LIMIT),
                           KNOWN(CUDA_ERROR_INVALID_PTX),
                           KNOWN(CUDA_ERROR_NVLINK_UNCORRECTABLE),
                           KNOWN(CUDA_ERROR_JIT_COMPILER_NOT_FOUND),
                           KNOWN(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
                           KNOWN(CUDA_ERROR_INVALID_SOURCE),
                           KNOWN(CUDA_ERROR_FILE_NOT_FOUND),
                           KNOWN(CUDA_ERROR_OPERATING_SYSTEM),
                           KNOWN(CUDA_ERROR_INVALID_HANDLE),
                           KNOWN(CUDA_ERROR_ILLEGAL_STATE),
                           KNOWN(CUDA_ERROR_NOT_FOUND),
                           KNOWN(CUDA_ERROR_NOT_READY),
                           KNOWN(CUDA_ERROR_ILLEGAL_ADDRESS),
                           KNOWN(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
                           KNOWN(CUDA_ERROR_LAUNCH_TIMEOUT),
                           KNOWN(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
                           KNOWN(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
                           KNOWN(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE),
                           KNOWN(CUDA_ERROR_CONTEXT_IS_DESTROYED),
                           KNOWN(CUDA_ERROR_ASSERT),
                           KNOWN(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
                           KNOWN(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
                           KNOWN(CUDA_ERROR_HARDWARE_STACK_ERROR),
                           KNOWN(CUDA_ERROR_ILLEGAL_INSTRUCTION),
                           KNOWN(CUDA_ERROR_MISALIGNED_ADDRESS),
                           KNOWN(CUDA_ERROR_INVALID_ADDRESS_SPACE),
                           KNOWN(CUDA_ERROR_INVALID_PC),
                           KNOWN(CUDA_ERROR_LAUNCH_FAILED),
                           KNOWN(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
                           KNOWN(CUDA_ERROR_NOT_PERMITTED),
                           KNOWN(CUDA_ERROR_NOT_SUPPORTED),
                           KNOWN(CUDA_ERROR_SYSTEM_NOT_READY),
                           KNOWN(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
                           KNOWN(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
                           KNOWN(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
                           KNOWN(CUDA_ERROR_CAPTURED_EVENT),
                           KNOWN(CUDA_ERROR_TIMEOUT),
                           KNOWN(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
                           KNOWN(CUDA_ERROR_EXTERNAL_DEVICE),
                           KNOWN(CUDA_ERROR_UNKNOWN)};
#undef KNOWN
    for (auto& [code, expected] : known) {
        const char *name = nullptr, *text = nullptr;
        CU_OK(cu.cuGetErrorName(code, &name));
        CHECK(name == std::string(expected));
        CU_OK(cu.cuGetErrorString(code, &text));
        CHECK(std::string(text).size() > 4);
    }
}

TEST_CASE("error texts are the ones that programs print", "[error]") {
    auto text_of = [](CUresult code) {
        const char* text = nullptr;
        CU_OK(cu.cuGetErrorString(code, &text));
        return std::string(text);
    };
    CHECK(text_of(CUDA_SUCCESS) == "no error");
    CHECK(text_of(CUDA_ERROR_INVALID_VALUE) == "invalid argument");
    CHECK(text_of(CUDA_ERROR_OUT_OF_MEMORY) == "out of memory");
    CHECK(text_of(CUDA_ERROR_ILLEGAL_ADDRESS) == "an illegal memory access was encountered");
}

TEST_CASE("an unknown error code is refused and its name is null", "[error]") {
    const char* name = "unchanged";
    CU_CHECK(cu.cuGetErrorName(static_cast<CUresult>(123456), &name), CUDA_ERROR_INVALID_VALUE);
    CHECK(name == nullptr);
    name = "unchanged";
    CU_CHECK(cu.cuGetErrorString(static_cast<CUresult>(123456), &name), CUDA_ERROR_INVALID_VALUE);
    CHECK(name == nullptr);
}
