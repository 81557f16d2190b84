// What the test cases share: a current context, memory that frees itself, kernels, a gate that holds a stream, and
// test cases that get a process of their own.
#pragma once

#include <array>
#include <future>
#include <memory>
#include <string>
#include <vector>
#include "tests/support/catch.hpp"

#include "driver.hpp"

namespace driver_api {

// What a call that takes any address is told for the program's memory.
inline CUdeviceptr address_of(const void* host) {
    return reinterpret_cast<CUdeviceptr>(host);
}

// "CUDA_ERROR_INVALID_VALUE" rather than 1 in the test's output.
std::string name_of(CUresult result);

#define CU_OK(call)                                    \
    do {                                               \
        CUresult cu_result = (call);                   \
        INFO(#call);                                   \
        REQUIRE(name_of(cu_result) == "CUDA_SUCCESS"); \
    } while (false)

#define CU_CHECK(call, expected)                        \
    do {                                                \
        CUresult cu_result = (call);                    \
        INFO(#call);                                    \
        CHECK(name_of(cu_result) == name_of(expected)); \
    } while (false)

// For the few places where NVIDIA's documentation allows two answers.
#define CU_CHECK_EITHER(call, first, second)                    \
    do {                                                        \
        CUresult cu_result = (call);                            \
        INFO(#call << " gives " << name_of(cu_result));         \
        CHECK((cu_result == (first) || cu_result == (second))); \
    } while (false)

// A process of the test case's own, for what a process can do only once (cuInit) or must not survive (a fault).
// The parent starts this binary again for this one test case and never calls the driver itself.
#define FRESH_PROCESS_TEST_CASE(name, tags) \
    FRESH_PROCESS_TEST_CASE_(name, tags, INTERNAL_CATCH_UNIQUE_NAME(fresh_process_body_))
#define FRESH_PROCESS_TEST_CASE_(name, tags, body)  \
    static void body();                             \
    TEST_CASE(name, tags) {                         \
        if (driver_api::begins_in_fresh_process())  \
            body();                                 \
        else                                        \
            driver_api::run_in_fresh_process(name); \
    }                                               \
    static void body()

bool begins_in_fresh_process();
void run_in_fresh_process(const char* test_case);

// The driver initialised and a device's primary context current for as long as this lives.
class Gpu {
public:
    explicit Gpu(int ordinal = 0);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    int attribute(CUdevice_attribute which) const;

    CUdevice device = -1;
    CUcontext context = nullptr;
};

// Device memory, freed at the end of the scope.
class Memory {
public:
    explicit Memory(size_t bytes);
    template <class T>
    explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
        CU_OK(cu.cuMemcpyHtoD(address, values.data(), values.size() * sizeof(T)));
    }
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    template <class T>
    std::vector<T> read(size_t count, size_t offset_bytes = 0) const {
        std::vector<T> values(count);
        CU_OK(cu.cuMemcpyDtoH(values.data(), address + offset_bytes, count * sizeof(T)));
        return values;
    }
    template <class T>
    T first() const {
        return read<T>(1)[0];
    }

    CUdeviceptr address = 0;
};

class Stream {
public:
    explicit Stream(unsigned flags = CU_STREAM_DEFAULT) { CU_OK(cu.cuStreamCreate(&handle, flags)); }
    ~Stream() { cu.cuStreamDestroy(handle); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    operator CUstream() const { return handle; }

    CUstream handle = nullptr;
};

class Event {
public:
    explicit Event(unsigned flags = CU_EVENT_DEFAULT) { CU_OK(cu.cuEventCreate(&handle, flags)); }
    ~Event() { cu.cuEventDestroy(handle); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    operator CUevent() const { return handle; }

    CUevent handle = nullptr;
};

// The images of kernels.cu, in every form a driver must take.
struct Image {
    const unsigned char* data;
    size_t size;
};
Image ptx_image();
Image fatbin_image();        // nvcc's default: zstd
Image fatbin_lz4_image();    // -compress-mode=speed
Image fatbin_plain_image();  // -compress-mode=none
Image fatbin_sm75_image();   // machine code for sm_75 and nothing else
// Two units that need each other (-rdc=true), to be linked.
std::array<Image, 2> separate_images();
Image object_image();   // the first of them as a host's object
Image library_image();  // the other in a library of such (ar)

// What nvcc puts in front of a fat binary in an executable, and what the runtime passes to the driver.
struct FatbinWrapper {
    unsigned magic = 0x466243b1;
    unsigned version = 1;
    const void* data = nullptr;
    void* unused = nullptr;
};

class Module {
public:
    explicit Module(const void* image = ptx_image().data) { CU_OK(cu.cuModuleLoadData(&handle, image)); }
    ~Module() { cu.cuModuleUnload(handle); }
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    CUfunction function(const char* name) const {
        CUfunction result = nullptr;
        CU_OK(cu.cuModuleGetFunction(&result, handle, name));
        return result;
    }

    CUmodule handle = nullptr;
};

// The pointers that kernelParams wants, to arguments that outlive the call.
template <class... Arguments>
CUresult launch_shaped(CUfunction function, unsigned blocks, unsigned threads, unsigned shared, CUstream stream,
                       Arguments... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    return cu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, pointers, nullptr);
}
template <class... Arguments>
CUresult launch(CUfunction function, CUstream stream, Arguments... arguments) {
    return launch_shaped(function, 1, 1, 0, stream, arguments...);
}

// Runs the kernel and waits: so that it is loaded. A driver that loads code when it is first used may make a kernel's first
// launch wait for all that is under way, and what a gate holds stays under way.
template <class... Arguments>
void run_once(CUfunction function, Arguments... arguments) {
    CU_OK(launch(function, nullptr, arguments...));
    CU_OK(cu.cuCtxSynchronize());
}

// Holds a stream: nothing put into it after the gate runs before open(). Asynchrony can so be tested without any
// timing. Hold one gate at a time: a driver may run all host functions on one thread.
class Gate {
public:
    explicit Gate(CUstream stream) {
        // The callback owns its copy: it may still be running when this object is gone.
        auto* opened = new std::shared_future<void>(promise_.get_future().share());
        CU_OK(cu.cuLaunchHostFunc(stream, wait, opened));
    }
    ~Gate() { open(); }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;

    void open() {
        if (!open_) promise_.set_value();
        open_ = true;
    }

private:
    static void wait(void* opened) {
        std::unique_ptr<std::shared_future<void>> owned(static_cast<std::shared_future<void>*>(opened));
        owned->wait();
    }
    std::promise<void> promise_;
    bool open_ = false;
};

}  // namespace driver_api
