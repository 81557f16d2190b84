// What this session lends to other processes of its claim and what it has borrowed from them: memory and events, each by a
// random name. The supervisor keeps what is lent; its messages are listed in gpu_server/supervisor/exchange.hpp.
//
// Memory that is lent stays charged to this session until nobody here holds it and nobody has borrowed it any more.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/exchange_records.hpp"
#include "gpu_server/worker/memory_accounts.hpp"
#include "gpu_server/worker/supervisor_link.hpp"

namespace tnr::worker {

// Something of another process. The supervisor hears when the last holder is done with it.
struct Borrowed {
    Borrowed(SupervisorLink& supervisor, std::string name) : name(std::move(name)), supervisor_(supervisor) {}
    ~Borrowed();
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    const std::string name;

private:
    SupervisorLink& supervisor_;
};

struct BorrowedMemory {
    std::shared_ptr<Borrowed> borrowed;
    uint32_t device = 0;  // of this session's
    uint64_t bytes = 0;
    UniqueFd file;
};

// Any thread. The functions that ask the supervisor wait for its answer, so no lock may be held.
class Exchange {
public:
    explicit Exchange(SupervisorLink& supervisor) : supervisor_(supervisor) {}

    // Of what is lent as memory is: by a handle of the driver's.
    enum class Kind { memory, multicast };

    // `file`: the driver's own handle for the memory. The same memory has the same name whenever it is lent.
    // `bytes`: that it is charged for; 0 of a multicast object.
    CUresult lend(const std::shared_ptr<Physical>& memory, Kind kind, uint64_t bytes, int file, wire::ThingName& name)
        TNR_EXCLUDES(mutex_);
    CUresult lend_event(int file, wire::ThingName& name);
    void withdraw_event(const wire::ThingName& name);
    // CUDA_ERROR_INVALID_VALUE for a name that nobody of the claim has lent, for another kind of thing, and for what its
    // owner has freed.
    CUresult borrow(const wire::ThingName& name, Kind kind, BorrowedMemory& memory);
    CUresult borrow_event(const wire::ThingName& name, std::shared_ptr<Borrowed>& borrowed, UniqueFd& file);
    // True if this session has lent it under that name.
    bool is_lent(const std::shared_ptr<Physical>& memory, wire::ThingName& name) TNR_EXCLUDES(mutex_);
    // Something was unmapped or released: what only we still hold can be had no more.
    void withdraw_unused() TNR_EXCLUDES(mutex_);

private:
    struct Lent {
        std::shared_ptr<Physical> memory;
        wire::ThingName name{};
    };
    SupervisorLink& supervisor_;
    Mutex mutex_;
    std::map<const Physical*, Lent> lent_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::worker
