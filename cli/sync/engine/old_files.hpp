// What the receiver tells of files that it has in an older version, by a thread of its own: reading them takes long.
#pragma once

#include <deque>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "cli/sync/engine/destination.hpp"

namespace tnr::sync {

class OldFiles {
public:
    explicit OldFiles(Outbox& outbox);
    ~OldFiles();
    // The hashes of its blocks.
    void tell_blocks(uint32_t index, Place place, uint64_t size) TNR_EXCLUDES(mutex_);
    // librsync's signature from there to its end. Empty when it cannot be read.
    void tell_signature(uint32_t index, Place place, uint64_t size, uint64_t from) TNR_EXCLUDES(mutex_);

private:
    struct Task {
        uint32_t index = 0;
        Place place;
        uint64_t size = 0, from = 0;
        bool signature = false;
    };
    void add(Task task) TNR_EXCLUDES(mutex_);
    void work() TNR_EXCLUDES(mutex_);
    bool send_blocks(const Task& task);
    bool send_signature(const Task& task);

    Outbox& outbox_;
    Mutex mutex_;
    Condition more_;
    std::deque<Task> tasks_ TNR_GUARDED_BY(mutex_);
    bool leaving_ TNR_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

// A regular file in that folder, whatever has come into its place; none when it is no file.
UniqueFd open_old(const Place& place);
// The same for a part that a run has left; none when that run still writes it.
UniqueFd open_part(const Place& place);
// Says so of an open temporary file, until it is closed. False: another run does. Where files cannot be locked none does.
bool lock_part(int fd);

}  // namespace tnr::sync
