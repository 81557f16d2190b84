// See shared_events.hpp.
#include "gpu_server/worker/shared_events.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <chrono>
#include <thread>

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

// How often a wait looks at the page, and how often at what might keep the event from ever being reached.
static constexpr std::chrono::microseconds look_interval{100};
static constexpr int looks_per_check = 1000;

static bool driver_can() {
    auto& table = driver();
    return table.cuMemHostRegister_v2 && table.cuMemHostGetDevicePointer_v2 && table.cuStreamWriteValue64_v2 &&
           table.cuStreamWaitValue64_v2;
}

CUresult InterprocessEvent::map() {
    void* there = mmap(nullptr, event_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (there == MAP_FAILED) return CUDA_ERROR_OPERATING_SYSTEM;
    page_ = static_cast<EventPage*>(there);
    constexpr unsigned flags = CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE;
    auto result = driver().cuMemHostRegister_v2(there, event_page_bytes, flags);
    if (result != CUDA_SUCCESS) return result;
    return driver().cuMemHostGetDevicePointer_v2(&address_, there, 0);
}

std::shared_ptr<InterprocessEvent> InterprocessEvent::create(CUresult& result) {
    result = CUDA_ERROR_NOT_SUPPORTED;
    if (!driver_can()) return nullptr;
    UniqueFd file(memfd_create("interprocess-event", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    result = CUDA_ERROR_OPERATING_SYSTEM;
    if (!file || ftruncate(file.get(), event_page_bytes) != 0) return nullptr;
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return nullptr;
    std::shared_ptr<InterprocessEvent> event(new InterprocessEvent(std::move(file)));
    result = event->map();
    return result == CUDA_SUCCESS ? event : nullptr;
}

std::shared_ptr<InterprocessEvent> InterprocessEvent::open(UniqueFd file, std::shared_ptr<Borrowed> borrowed,
                                                           CUresult& result) {
    result = CUDA_ERROR_NOT_SUPPORTED;
    if (!driver_can()) return nullptr;
    std::shared_ptr<InterprocessEvent> event(new InterprocessEvent(std::move(file)));
    event->borrowed_ = std::move(borrowed);
    result = event->map();
    return result == CUDA_SUCCESS ? event : nullptr;
}

InterprocessEvent::~InterprocessEvent() {
    if (lent_by_) lent_by_->withdraw_event(name_);
    if (!page_) return;
    (void)driver().cuMemHostUnregister(page_);
    munmap(page_, event_page_bytes);
}

CUresult InterprocessEvent::lend(Exchange& exchange, wire::ThingName& name) {
    if (borrowed_) return CUDA_ERROR_INVALID_HANDLE;  // the owner's to lend
    if (!lent_by_) {
        if (auto result = exchange.lend_event(file_.get(), name_); result != CUDA_SUCCESS) return result;
        lent_by_ = &exchange;
    }
    name = name_;
    return CUDA_SUCCESS;
}

CUdeviceptr InterprocessEvent::address_of(uint64_t recording) const {
    return address_ +
           static_cast<CUdeviceptr>(reinterpret_cast<char*>(&page_->word(recording)) - reinterpret_cast<char*>(page_));
}

CUresult InterprocessEvent::record(CUstream stream) {
    auto recording = ++page_->recorded;
    return driver().cuStreamWriteValue64_v2(stream, address_of(recording), recording, 0);
}

CUresult InterprocessEvent::wait(CUstream stream) {
    auto recording = page_->recorded.load();
    if (recording == 0 || reached()) return CUDA_SUCCESS;
    return driver().cuStreamWaitValue64_v2(stream, address_of(recording), recording, CU_STREAM_WAIT_VALUE_GEQ);
}

bool InterprocessEvent::reached() const {
    auto recording = page_->recorded.load();
    return recording == 0 || page_->word(recording).load() >= recording;
}

CUresult InterprocessEvent::synchronize(const std::function<CUresult()>& trouble) const {
    auto recording = page_->recorded.load();
    for (int looks = 1; recording != 0 && page_->word(recording).load() < recording; ++looks) {
        if (looks % looks_per_check == 0)
            if (auto result = trouble(); result != CUDA_SUCCESS) return result;
        std::this_thread::sleep_for(look_interval);
    }
    return CUDA_SUCCESS;
}

}  // namespace tnr::worker
