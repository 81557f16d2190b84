// Copies to the client that a wait must not overtake: once the client hears that the GPU is past a copy, in whatever
// stream it asked, the copy's data must have gone before that word.
//
// Only copies that their callers do not wait for are entered here. Of a copy that a thread of the program still waits
// for, no other thread can know that it is done.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "api_client/base/mutex.hpp"

namespace tnr::worker {

// Any thread.
class Downloads {
public:
    // True once work behind the copy may have been seen done. Asked on any thread; must not wait.
    using PastGpu = std::function<bool()>;
    // Returns the copy's number. Numbers rise.
    uint64_t begin(PastGpu past_gpu) TNR_EXCLUDES(mutex_);
    // All its data and the answer to it have been handed to the link.
    void end(uint64_t copy) TNR_EXCLUDES(mutex_);

    // What a wait that begins now may have to wait for: the copies with smaller numbers.
    uint64_t next() TNR_EXCLUDES(mutex_);
    // True if a copy with a number below `before` is past the GPU and has not ended.
    bool any_leaving(uint64_t before) TNR_EXCLUDES(mutex_);
    // Blocks until no such copy is left. Takes moments: what is past the GPU needs no more credit of the client.
    void wait_until_gone(uint64_t before) TNR_EXCLUDES(mutex_);

private:
    struct Copy {
        uint64_t number;
        std::shared_ptr<const PastGpu> past_gpu;
    };
    std::vector<Copy> begun_before(uint64_t before) TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    Condition ended_;
    uint64_t next_ TNR_GUARDED_BY(mutex_) = 1;
    std::map<uint64_t, std::shared_ptr<const PastGpu>> copies_ TNR_GUARDED_BY(mutex_);  // by number
};

}  // namespace tnr::worker
