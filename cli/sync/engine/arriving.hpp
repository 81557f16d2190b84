// Files on their way to their places: under a temporary name until they are whole and proven.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "cli/sync/engine/delta.hpp"
#include "cli/sync/engine/destination.hpp"

namespace tnr::sync {

// The temporary names of one run.
class Names {
public:
    Names();
    std::string next();
    // For one that a later run may go on with; `place` is its real name.
    std::string next(const std::string& place, const Item& item);

private:
    const std::string run_;
    const size_t first_number_;
    size_t number_ = 0;
};

// A large file. Its errors are errnos; EPROTO: the sender says what it may not.
class Arriving {
public:
    Arriving(uint32_t index, Item item, Place place, bool replaces_folder);
    ~Arriving();  // keeps a large part, for the next run to go on with; removes everything else

    int open(Names& names);
    // What copies come from; a missing one makes them fail.
    void use_old(UniqueFd old, uint64_t size) { old_ = std::move(old), old_size_ = size; }
    int add(std::string_view bytes);
    int add_zeros(uint64_t count);
    int copy(uint64_t from, uint64_t count);
    int patch(uint64_t from, bool last, std::string_view delta);
    // Whether all of it is here and right.
    bool whole(std::string_view digest);
    int settle();
    // It is no part of what is going to be there: nobody goes on with it.
    void throw_away();

    uint32_t index() const { return index_; }
    bool has_old() const { return static_cast<bool>(old_); }

private:
    ssize_t read_old(uint64_t at, char* to, size_t count) const;

    const uint32_t index_;
    const Item item_;
    const Place place_;
    const bool replaces_folder_;
    std::string temporary_;
    UniqueFd fd_, old_;
    uint64_t old_size_ = 0, at_ = 0;
    int error_ = 0;  // of writing, while librsync is between us
    Digest digest_;
    std::unique_ptr<DeltaReader> patch_;
    uint64_t patch_from_ = 0;
    std::vector<char> piece_;
};

// A file that came in one message.
struct Small {
    uint32_t index = 0;
    Place place;
    Item item;
    bool replaces_folder = false;
    std::string temporary, content;
};

// Writes small files with two threads: making a file takes the file system longer than anything else does. Files of one folder
// go to the same thread, since a folder has one lock.
class SmallFiles {
public:
    SmallFiles();
    ~SmallFiles();
    // Waits while many wait.
    void put(uint32_t folder, Small file) TNR_EXCLUDES(mutex_);
    // Waits until all are written.
    void settle() TNR_EXCLUDES(mutex_);
    struct Failure {
        uint32_t index = 0;
        int error = 0;
    };
    std::optional<Failure> failure() TNR_EXCLUDES(mutex_);

private:
    static constexpr size_t threads = 2, waiting_max = 64;
    void work(size_t number) TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    std::array<Condition, threads> more_;  // for each thread
    Condition fewer_;
    std::array<std::deque<Small>, threads> waiting_ TNR_GUARDED_BY(mutex_);
    size_t writing_ TNR_GUARDED_BY(mutex_) = 0;
    bool leaving_ TNR_GUARDED_BY(mutex_) = false;
    std::optional<Failure> failure_ TNR_GUARDED_BY(mutex_);
    std::array<std::thread, threads> workers_;
};

}  // namespace tnr::sync
