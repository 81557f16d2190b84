// The stand-in for a driver that shall be narrow: streams of one priority have one queue between them, as on a GPU with few of
// them. A copy there stands behind whatever stands in it, in whichever stream that is. And for one that shall be wordless:
// streams cannot wait for words in memory.
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driver_stand_in.hpp"

namespace {

std::mutex mutex;
std::vector<std::pair<const volatile unsigned*, unsigned>> awaited;  // words of pinned memory, and what they will be

bool any_stands() {
    std::lock_guard lock(mutex);
    std::erase_if(awaited, [](auto& wait) { return static_cast<int>(*wait.first - wait.second) >= 0; });
    return !awaited.empty();
}

}  // namespace

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    if (shall("wordless")) return CUDA_ERROR_NOT_SUPPORTED;
    if (shall("narrow")) {
        std::lock_guard lock(mutex);
        awaited.emplace_back(reinterpret_cast<const volatile unsigned*>(address), value);
    }
    return EMULATED(cuStreamWaitValue32_v2)(stream, address, value, flags);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    int priority = 0;
    if (shall("narrow") && EMULATED(cuStreamGetPriority)(stream, &priority) == CUDA_SUCCESS)
        while (priority == 0 && any_stands()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return EMULATED(cuMemcpyDtoHAsync_v2)(to, from, bytes, stream);
}
