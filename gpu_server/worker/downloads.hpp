// Copies to the client that a wait must not overtake: a copy's data is sent before any word from which the client can
// tell, whatever stream it asked about, that the GPU is past the copy. Nor does a copy overtake one that was begun before it:
// both may be to the same memory of the program.
//
// A copy that a thread of the program waits for need not be entered: until that call returns, no other thread can
// know that the copy is done.
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
    // True once the client may have learned that work behind the copy is done. Called on any thread; must not block.
    using PastGpu = std::function<bool()>;
    // Enters a copy and returns its number. Numbers rise.
    uint64_t begin(PastGpu past_gpu) TNR_EXCLUDES(mutex_);
    // Call it when all the copy's data and its answer have been handed to the link.
    void end(uint64_t copy) TNR_EXCLUDES(mutex_);

    // The next copy's number. A wait that begins now may have to wait for the copies with smaller ones.
    uint64_t next() TNR_EXCLUDES(mutex_);
    // True if a copy with a number below `before` is past the GPU and has not ended.
    bool any_leaving(uint64_t before) TNR_EXCLUDES(mutex_);
    // Blocks until no such copy is left. That takes moments: a copy past the GPU needs no more credit from the client.
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
