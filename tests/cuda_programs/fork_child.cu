// fork without exec: once the parent uses CUDA, the child is refused and neither is harmed; a child forked before
// works.
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

__global__ void set(int* out, int value) {
    *out = value;
}

// The exit status of a child that runs `body`; -1 when it did not end by itself.
template <class Body>
int in_child(Body body) {
    pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int use_device() {
    int *out = nullptr, value = 0;
    if (cudaMalloc(&out, sizeof(int)) != cudaSuccess) return 1;
    set<<<1, 1>>>(out, 7);
    if (cudaMemcpy(&value, out, sizeof(int), cudaMemcpyDeviceToHost) != cudaSuccess) return 2;
    return value == 7 ? 77 : 3;
}

int main() {
    EXPECT(in_child(use_device) == 77);  // the parent has not touched CUDA yet

    check::Array<int> out(1);
    set<<<1, 1>>>(out.data, 41);
    EXPECT(out.host()[0] == 41);
    int refused = in_child([] {
        void* pointer = nullptr;
        return int(cudaMalloc(&pointer, 4));
    });
    EXPECT(refused == cudaErrorInitializationError);
    int wait_refused = in_child([] { return int(cudaDeviceSynchronize()); });
    EXPECT(wait_refused == cudaErrorInitializationError);

    set<<<1, 1>>>(out.data, 42);  // the parent goes on as before
    CUDA_LAUNCHED();
    EXPECT(out.host()[0] == 42);
    return check::finish();
}
