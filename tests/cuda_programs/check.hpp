// What every program here shares: end with a message on the first CUDA error, compare with the CPU's result, and
// say PASS only when something was compared. A program that forgot to compare anything fails.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace check {

inline std::atomic<long> compared{0};
inline std::atomic<long> wrong{0};

// Ends the program: every CUDA call that must succeed goes through here.
inline void ok(cudaError_t result, const char* call, int line) {
    if (result == cudaSuccess) return;
    std::printf("line %d: %s: %s (%s)\n", line, call, cudaGetErrorName(result), cudaGetErrorString(result));
    std::exit(1);
}

// Only the first few differences are printed: a device that did nothing differs everywhere.
inline bool that(bool right, const char* what, int line) {
    ++compared;
    if (!right && ++wrong <= 10) std::printf("line %d: not true: %s\n", line, what);
    return right;
}

inline void near(double got, double expected, double tolerance, size_t index, int line) {
    ++compared;
    if (std::fabs(got - expected) <= tolerance) return;  // false for NaN, which is therefore wrong
    if (++wrong <= 10) std::printf("line %d: [%zu] is %.9g, expected %.9g\n", line, index, got, expected);
}

template <class T>
void equal(const std::vector<T>& got, const std::vector<T>& expected, int line) {
    if (!that(got.size() == expected.size(), "sizes agree", line)) return;
    for (size_t i = 0; i < got.size(); ++i) near(double(got[i]), double(expected[i]), 0, i, line);
}

// The value for `return` from main.
inline int finish() {
    if (compared == 0) std::printf("nothing was compared\n");
    if (wrong > 0) std::printf("%ld of %ld comparisons failed\n", wrong.load(), compared.load());
    bool passed = compared > 0 && wrong == 0;
    std::printf(passed ? "PASS\n" : "FAIL\n");
    return passed ? 0 : 1;
}

// A device array of T that frees itself; filled from the host, or with bytes that no right answer consists of.
template <class T>
struct Array {
    explicit Array(size_t count) : count(count) {
        ok(cudaMalloc(&data, count * sizeof(T)), "cudaMalloc", __LINE__);
        ok(cudaMemset(data, 0xA5, count * sizeof(T)), "cudaMemset", __LINE__);
        // The fill need not be done when the call returns, and streams that do not block would not wait for it.
        ok(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", __LINE__);
    }
    explicit Array(const std::vector<T>& host) : Array(host.size()) {
        ok(cudaMemcpy(data, host.data(), count * sizeof(T), cudaMemcpyHostToDevice), "copy to the device", __LINE__);
    }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    ~Array() { cudaFree(data); }

    std::vector<T> host() const {
        std::vector<T> result(count);
        ok(cudaMemcpy(result.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host", __LINE__);
        return result;
    }

    T* data = nullptr;
    size_t count;
};

#if CUDART_VERSION >= 12050
// A function of the driver, as programs find it that are not linked with libcuda.
template <class Function>
Function driver_function(const char* name, unsigned version = 12000) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    ok(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status), name, __LINE__);
    that(found != nullptr, name, __LINE__);
    return reinterpret_cast<Function>(found);
}
#endif

// Reproducible numbers in [0, 1), the same with every standard library.
struct Random {
    unsigned state = 12345;
    unsigned bits() { return state = state * 1664525u + 1013904223u, state >> 8; }
    float unit() { return float(bits()) / float(1u << 24); }
};

inline std::vector<float> random_floats(size_t count, unsigned seed = 12345) {
    Random random{seed};
    std::vector<float> values(count);
    for (float& value : values) value = random.unit();
    return values;
}

}  // namespace check

#define CUDA_OK(call) check::ok((call), #call, __LINE__)
#define CUDA_LAUNCHED() check::ok(cudaGetLastError(), "kernel launch", __LINE__)
#define EXPECT(condition) check::that((condition), #condition, __LINE__)
#define EXPECT_ERROR(call, expected) check::that((call) == (expected), #call " gives " #expected, __LINE__)
#define EXPECT_NEAR(got, expected, tolerance, index) check::near((got), (expected), (tolerance), (index), __LINE__)
#define EXPECT_EQUAL(got, expected) check::equal((got), (expected), __LINE__)
