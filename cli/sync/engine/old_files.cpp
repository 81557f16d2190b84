// See old_files.hpp.
#include "cli/sync/engine/old_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "api_client/base/file_lock.hpp"
#include "api_client/base/interrupt.hpp"
#include "cli/sync/engine/delta.hpp"
#include "cli/sync/engine/messages.hpp"

namespace tnr::sync {
namespace {

Message tells(Says what, uint32_t index, bool last) {
    return Message(static_cast<uint8_t>(what)).number(index).number(last);
}

}  // namespace

UniqueFd open_old(const Place& place) {
    UniqueFd fd{::openat(place.fd(), place.name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    struct stat found;
    if (!fd || ::fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode)) fd.reset();
    return fd;
}

UniqueFd open_part(const Place& place) {
    UniqueFd fd = open_old(place);
    if (fd && !lock_part(fd.get())) fd.reset();
    return fd;
}

bool lock_part(int fd) {
    return try_lock(fd) != Lock::theirs;
}

OldFiles::OldFiles(Outbox& outbox) : outbox_(outbox) {
    interrupt::SignalsBlocked blocked;
    thread_ = std::thread([this] { work(); });
}

OldFiles::~OldFiles() {
    {
        LockGuard lock(mutex_);
        leaving_ = true;
        more_.notify_all();
    }
    thread_.join();
}

void OldFiles::tell_blocks(uint32_t index, Place place, uint64_t size) {
    add({index, std::move(place), size, 0, false});
}

void OldFiles::tell_signature(uint32_t index, Place place, uint64_t size, uint64_t from) {
    add({index, std::move(place), size, from, true});
}

void OldFiles::add(Task task) {
    LockGuard lock(mutex_);
    tasks_.push_back(std::move(task));
    more_.notify_all();
}

void OldFiles::work() {
    for (;;) {
        Task task;
        {
            UniqueLock lock(mutex_);
            more_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return !tasks_.empty() || leaving_; });
            if (leaving_) return;
            task = std::move(tasks_.front());
            tasks_.pop_front();
        }
        if (!(task.signature ? send_signature(task) : send_blocks(task))) return;
    }
}

// Fewer than there are when it cannot be read to its end: the sender then has nothing to compare the rest with.
bool OldFiles::send_blocks(const Task& task) {
    UniqueFd old = open_old(task.place);
    uint64_t block = delta_block_bytes(task.size), at = 0;
    std::vector<char> piece(std::max<uint64_t>(piece_bytes_max, block));
    uint64_t at_once = piece.size() / block * block;
    std::string hashes;
    while (old) {
        ssize_t got = ::pread(old.get(), piece.data(), at_once, static_cast<off_t>(at));
        uint64_t blocks = std::min(got > 0 ? static_cast<uint64_t>(got) / block : 0, (task.size - at) / block);
        for (uint64_t i = 0; i < blocks; ++i) {
            uint64_t hash = block_hash({piece.data() + i * block, block});
            hashes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
        }
        at += blocks * block;
        if (blocks * block < at_once) break;
        if (hashes.size() < piece_bytes_max) continue;
        if (!outbox_.send(tells(Says::blocks, task.index, false), hashes)) return false;
        hashes.clear();
    }
    return outbox_.send(tells(Says::blocks, task.index, true).text(hashes));
}

bool OldFiles::send_signature(const Task& task) {
    UniqueFd old = open_old(task.place);
    uint64_t at = task.from;
    bool sent = true;
    auto bytes = [&](char* to, size_t most) -> ssize_t {
        ssize_t got = ::pread(old.get(), to, std::min<uint64_t>(most, task.size - at), static_cast<off_t>(at));
        if (got > 0) at += static_cast<uint64_t>(got);
        return got;
    };
    auto sink = [&](std::string_view made) {
        sent = outbox_.send(tells(Says::signature, task.index, false), made);
        return sent;
    };
    if (old && task.from < task.size) (void)make_signature(bytes, task.size - task.from, sink);
    return sent && outbox_.send(tells(Says::signature, task.index, true).text(""));
}

}  // namespace tnr::sync
