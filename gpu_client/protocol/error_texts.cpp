// cuGetErrorName and cuGetErrorString, as NVIDIA's driver answers them. Part of both libraries that play a driver: our
// client and the emulated one.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <algorithm>
#include <iterator>

namespace {

struct ErrorText {
    CUresult code;
    const char* name;
    const char* description;
};

#define TNR_ERROR(code, description) \
    { code, #code, description }
// Sorted by code.
constexpr ErrorText errors[] = {
    TNR_ERROR(CUDA_SUCCESS, "no error"),
    TNR_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    TNR_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    TNR_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    TNR_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    TNR_ERROR(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled while using external profiling tool"),
    TNR_ERROR(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized: call cudaProfilerInitialize()"),
    TNR_ERROR(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    TNR_ERROR(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    TNR_ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    TNR_ERROR(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "API call is not supported in the installed CUDA driver"),
    TNR_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    TNR_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    TNR_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    TNR_ERROR(CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license"),
    TNR_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    TNR_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    TNR_ERROR(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    TNR_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    TNR_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    TNR_ERROR(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    TNR_ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    TNR_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    TNR_ERROR(CUDA_ERROR_ALREADY_ACQUIRED, "resource already acquired"),
    TNR_ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    TNR_ERROR(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "resource not mapped as array"),
    TNR_ERROR(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "resource not mapped as pointer"),
    TNR_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    TNR_ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    TNR_ERROR(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "exclusive-thread device already in use by a different thread"),
    TNR_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    TNR_ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    TNR_ERROR(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context"),
    TNR_ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"),
    TNR_ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    TNR_ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."),
    TNR_ERROR(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled"),
    TNR_ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "the provided execution affinity is not supported"),
    TNR_ERROR(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
              "the provided PTX contains unsupported call to cudaDeviceSynchronize"),
    TNR_ERROR(CUDA_ERROR_CONTAINED, "Invalid access of peer GPU memory over nvlink or a hardware error"),
    TNR_ERROR(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    TNR_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    TNR_ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    TNR_ERROR(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
    TNR_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    TNR_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    TNR_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    TNR_ERROR(CUDA_ERROR_LOSSY_QUERY, "attempted introspection would be semantically lossy"),
    TNR_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    TNR_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    TNR_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    TNR_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    TNR_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    TNR_ERROR(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch uses incompatible texturing mode"),
    TNR_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    TNR_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    TNR_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    TNR_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    TNR_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    TNR_ERROR(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted"),
    TNR_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    TNR_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    TNR_ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    TNR_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    TNR_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    TNR_ERROR(CUDA_ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space"),
    TNR_ERROR(CUDA_ERROR_INVALID_PC, "invalid program counter"),
    TNR_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    TNR_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    TNR_ERROR(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory not completely freed"),
    TNR_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    TNR_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    TNR_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    TNR_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    TNR_ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW"),
    TNR_ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED,
              "MPS client failed to connect to the MPS control daemon or the MPS server"),
    TNR_ERROR(CUDA_ERROR_MPS_RPC_FAILURE,
              "the remote procedural call between the MPS server and the MPS client failed"),
    TNR_ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY, "MPS server is not ready to accept new MPS client requests"),
    TNR_ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
              "the hardware resources required to create MPS client have been exhausted"),
    TNR_ERROR(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
              "the hardware resources required to support device connections have been exhausted"),
    TNR_ERROR(CUDA_ERROR_MPS_CLIENT_TERMINATED, "the MPS client has been terminated by the server"),
    TNR_ERROR(CUDA_ERROR_CDP_NOT_SUPPORTED,
              "is using CUDA Dynamic Parallelism, but the current configuration does not support it"),
    TNR_ERROR(CUDA_ERROR_CDP_VERSION_MISMATCH,
              "unsupported interaction between different versions of CUDA Dynamic Parallelism"),
    TNR_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    TNR_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    TNR_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    TNR_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    TNR_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    TNR_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    TNR_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
              "operation would make the legacy stream depend on a capturing blocking stream"),
    TNR_ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    TNR_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
              "attempt to terminate a thread-local capture sequence from another thread"),
    TNR_ERROR(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    TNR_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
              "the graph update was not performed because it included changes which violated constraints specific to "
              "instantiated graph update"),
    TNR_ERROR(CUDA_ERROR_EXTERNAL_DEVICE, "an async error has occurred in external entity outside of CUDA"),
    TNR_ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE, "a kernel launch error has occurred due to cluster misconfiguration"),
    TNR_ERROR(CUDA_ERROR_FUNCTION_NOT_LOADED, "the function handle is not loaded when calling"),
    TNR_ERROR(CUDA_ERROR_INVALID_RESOURCE_TYPE, "the resource type is invalid"),
    TNR_ERROR(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "the resource configuration is invalid"),
    TNR_ERROR(CUDA_ERROR_KEY_ROTATION, "a key rotation is in progress"),
    TNR_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef TNR_ERROR

CUresult answer(CUresult code, const char** out, const char* ErrorText::*field) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    auto found = std::lower_bound(std::begin(errors), std::end(errors), code,
                                  [](const ErrorText& text, CUresult wanted) { return text.code < wanted; });
    bool known = found != std::end(errors) && found->code == code;
    *out = known ? (*found).*field : nullptr;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuGetErrorName(CUresult code, const char** name) {
    return answer(code, name, &ErrorText::name);
}

CUresult cuGetErrorString(CUresult code, const char** text) {
    return answer(code, text, &ErrorText::description);
}
