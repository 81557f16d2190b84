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

// On a thread of the driver.
void Gates::stand(void* word) {
    std::unique_ptr<Word> held(static_cast<Word*>(word));
    for (uint32_t seen = *held->in_memory; seen < held->number; seen = *held->in_memory) held->in_memory->wait(seen);
}

CUresult Gates::hold_back(CUstream stream, const Word& word) {
    auto result = CUDA_ERROR_NOT_SUPPORTED;
    CUdeviceptr address = 0;
    if (driver().cuStreamWaitValue32_v2) result = find_address(word.in_memory, address);
    if (result == CUDA_SUCCESS)
        result = driver().cuStreamWaitValue32_v2(stream, address, word.number, CU_STREAM_WAIT_VALUE_GEQ);
    if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
    // Older drivers, and virtual machines' parts of a GPU, do not have such waits.
    auto held = std::make_unique<Word>(word);
    result = driver().cuLaunchHostFunc(stream, stand, held.get());
    if (result == CUDA_SUCCESS) (void)held.release();  // stand owns it now
    return result;
}

CUresult Gates::close(CUcontext context, CUstream stream, std::shared_ptr<Gate>& gate) {
    auto word = take(context);
    if (!word.in_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    ++word.number;
    if (auto result = hold_back(stream, word); result != CUDA_SUCCESS) {
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
    word_.in_memory->notify_all();  // where a function stands in place of the stream
    all_.give_back(context_, word_);
    all_.standing_.ends();
}

}  // namespace tnr::worker
