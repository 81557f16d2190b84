// printf in a kernel: the text arrives on the host's standard output at the next synchronisation. Standard output is
// sent through a temporary file, so that the program can check it itself.
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "check.hpp"

__global__ void talk(const char* who) {
    printf("thread %d of %s: %5.2f %s %llu %c%%\n", int(threadIdx.x), who, threadIdx.x * 0.5, "text", 1ull << 40, 'z');
    if (threadIdx.x == 1) printf("%08x|%-6d|%+d|%e\n", 0xbeef, 42, 7, 1234.5);
}

std::string output_of(void (*run)()) {
    char path[] = "/tmp/device_printf.XXXXXX";
    int file = mkstemp(path);
    unlink(path);
    std::fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    dup2(file, STDOUT_FILENO);
    run();
    std::fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    std::string text(4096, '\0');
    ssize_t length = pread(file, text.data(), text.size(), 0);
    text.resize(length > 0 ? size_t(length) : 0);
    close(file);
    close(kept);
    return text;
}

int main() {
    std::string text = output_of([] {
        check::Array<char> name(std::vector<char>{'g', 'p', 'u', '\0'});
        talk<<<1, 3>>>(name.data);
        CUDA_LAUNCHED();
        CUDA_OK(cudaDeviceSynchronize());
    });
    std::printf("the device said: %s", text.c_str());
    EXPECT(text.find("thread 0 of gpu:  0.00 text 1099511627776 z%\n") != std::string::npos);
    EXPECT(text.find("thread 1 of gpu:  0.50 text 1099511627776 z%\n") != std::string::npos);
    EXPECT(text.find("thread 2 of gpu:  1.00 text 1099511627776 z%\n") != std::string::npos);
    EXPECT(text.find("0000beef|42    |+7|1.234500e+03\n") != std::string::npos);
    return check::finish();
}
