// Every way out of a program with work still running: none may hang, crash or change the exit status. The program
// starts itself once per way, so that each has a fresh process.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "check.hpp"

__global__ void spin(unsigned* out, int rounds) {
    unsigned value = threadIdx.x;
    for (int i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
    out[threadIdx.x] = value;
}

// Leaves memory, a stream and a running kernel behind.
bool leave_work_behind() {
    unsigned *out = nullptr, first = 0;
    cudaStream_t stream;
    CUDA_OK(cudaMalloc(&out, 32 * sizeof(unsigned)));
    CUDA_OK(cudaStreamCreate(&stream));
    spin<<<1, 32, 0, stream>>>(out, 1);
    CUDA_OK(cudaMemcpyAsync(&first, out, sizeof(first), cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < 10; ++i) spin<<<1, 32, 0, stream>>>(out, 10'000);
    CUDA_LAUNCHED();
    return first == 1013904223u;
}

struct LateUser {  // a static object that still uses CUDA while the process ends
    void* pointer = nullptr;
    ~LateUser() {
        if (pointer) cudaFree(pointer);
    }
} late_user;

int leave(const char* way) {
    if (!leave_work_behind()) return 9;
    if (!std::strcmp(way, "return")) return 41;
    if (!std::strcmp(way, "thread")) std::thread([] { std::exit(42); }).join();
    if (!std::strcmp(way, "_exit")) _exit(43);
    if (!std::strcmp(way, "abandoned thread")) {
        std::thread([] {
            for (unsigned* out = nullptr;;) cudaMalloc(&out, 128), cudaFree(out);
        }).detach();
        return 44;
    }
    if (!std::strcmp(way, "late use")) return cudaMalloc(&late_user.pointer, 64) == cudaSuccess ? 45 : 8;
    if (!std::strcmp(way, "reset")) return cudaDeviceReset() == cudaSuccess ? 46 : 8;
    return 7;
}

int status_of(const char* way) {
    pid_t child = fork();  // the parent never uses CUDA
    if (child == 0) {
        execl("/proc/self/exe", "exit_paths", way, nullptr);
        _exit(6);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) std::printf("%s: ended by signal %d\n", way, WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int count, char** arguments) {
    if (count > 1) return leave(arguments[1]);
    EXPECT(status_of("return") == 41);
    EXPECT(status_of("thread") == 42);
    EXPECT(status_of("_exit") == 43);
    EXPECT(status_of("abandoned thread") == 44);
    EXPECT(status_of("late use") == 45);
    EXPECT(status_of("reset") == 46);
    return check::finish();
}
