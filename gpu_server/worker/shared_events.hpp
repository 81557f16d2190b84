// Events that several processes of a claim use (CU_EVENT_INTERPROCESS). The driver's own can be shared with processes that
// see each other only, and workers do not: so such an event is a page of memory that all of them have. A stream that
// reaches the event writes there, and a stream that waits for it waits for that word.
#pragma once

#include <functional>
#include <memory>

#include "api_client/base/handles.hpp"
#include "gpu_server/worker/event_page.hpp"
#include "gpu_server/worker/exchange.hpp"

namespace tnr::worker {

// This process's use of one. Any thread, except record() and wait(), which put work into a stream of the current context.
class InterprocessEvent {
public:
    static std::shared_ptr<InterprocessEvent> create(CUresult& result);
    static std::shared_ptr<InterprocessEvent> open(UniqueFd file, std::shared_ptr<Borrowed> borrowed, CUresult& result);
    ~InterprocessEvent();
    InterprocessEvent(const InterprocessEvent&) = delete;
    InterprocessEvent& operator=(const InterprocessEvent&) = delete;

    CUresult lend(Exchange& exchange, wire::ThingName& name);
    CUresult record(CUstream stream);
    CUresult wait(CUstream stream);
    bool reached() const;
    // Blocks. `trouble` is asked now and then: what it returns instead of success ends the wait.
    CUresult synchronize(const std::function<CUresult()>& trouble) const;

private:
    explicit InterprocessEvent(UniqueFd file) : file_(std::move(file)) {}
    CUresult map();
    CUdeviceptr address_of(uint64_t recording) const;

    UniqueFd file_;
    EventPage* page_ = nullptr;
    CUdeviceptr address_ = 0;  // of the page, for the GPU
    std::shared_ptr<Borrowed> borrowed_;
    Exchange* lent_by_ = nullptr;
    wire::ThingName name_{};
};

}  // namespace tnr::worker
