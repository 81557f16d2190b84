// See gates.hpp.
#include "gpu_server/worker/gates.hpp"

#include <sys/mman.h>

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

static constexpr size_t page_bytes = 4096;

// Pins the word's page if its context has not done so, or was another one that had the same handle.
static CUresult find_address(std::atomic<uint32_t>* word, CUdeviceptr& address) {
    const auto offset = reinterpret_cast<uintptr_t>(word) % page_bytes;
    void* page = reinterpret_cast<std::byte*>(word) - offset;
    if (driver().cuMemHostGetDevicePointer_v2(&address, page, 0) != CUDA_SUCCESS) {
        constexpr unsigned flags = CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE;
        auto result = driver().cuMemHostRegister_v2(page, page_bytes, flags);
        if (result == CUDA_SUCCESS) result = driver().cuMemHostGetDevicePointer_v2(&address, page, 0);
        if (result != CUDA_SUCCESS) return result;
    }
    address += offset;
    return CUDA_SUCCESS;
}

Gates::Word Gates::take(CUcontext context) {
    LockGuard lock(mutex_);
    auto& free = free_[context];
    if (free.empty()) {
        void* page = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return {};
        for (size_t offset = 0; offset < page_bytes; offset += sizeof(uint32_t))
            free.push_back({new (static_cast<std::byte*>(page) + offset) std::atomic<uint32_t>(0), 0});
    }
    auto word = free.back();
    free.pop_back();
    return word;
}

void Gates::give_back(CUcontext context, Word word) {
    LockGuard lock(mutex_);
    free_[context].push_back(word);
}

CUresult Gates::close(CUcontext context, CUstream stream, std::shared_ptr<Gate>& gate) {
    if (!driver().cuStreamWaitValue32_v2) return CUDA_ERROR_NOT_SUPPORTED;
    auto word = take(context);
    if (!word.in_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    ++word.number;
    CUdeviceptr address = 0;
    auto result = find_address(word.in_memory, address);
    if (result == CUDA_SUCCESS)
        result = driver().cuStreamWaitValue32_v2(stream, address, word.number, CU_STREAM_WAIT_VALUE_GEQ);
    if (result != CUDA_SUCCESS) {
        give_back(context, word);
        return result;
    }
    standing_.begins();
    gate = std::make_shared<Gate>(*this, context, word);
    return CUDA_SUCCESS;
}

void Gates::Gate::open() {
    open_ = true;
    *word_.in_memory = word_.number;
    all_.give_back(context_, word_);
    all_.standing_.ends();
}

}  // namespace tnr::worker
