// A GPU's memory as a file that all its processes map (TNR_EMULATED_MEMORY_FOLDER): what one of them wrote is what the next
// one finds, as on a GPU. For tests of what is left behind. Without it each process has memory of its own, new and zero.
//
// Who has a page holds a lock on it. The kernel ends such a lock with the last descriptor of the opened file, so what a
// process had is free once it is gone, however it went.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"

namespace tnr::emulated {

// Thread-safe.
class DeviceFile {
public:
    static constexpr uint64_t page_bytes = uint64_t{2} << 20;

    // The file `path`, made if it is not there, for as many whole pages as `bytes` has. Null if the system refuses.
    static std::unique_ptr<DeviceFile> open(std::string path, uint64_t bytes);

    int fd() const { return file_.get(); }
    // Where that many bytes (whole pages) begin that nobody has, or -1. They hold whatever they held.
    int64_t take(uint64_t bytes);
    void give_back(int64_t begin, uint64_t bytes);

    // The same for memory that others may be given: as long as anybody has the descriptor, nobody else gets the pages.
    UniqueFd take_shareable(uint64_t bytes, int64_t& begin);
    struct Stretch {
        int64_t begin;
        uint64_t bytes;
    };
    // What a descriptor that take_shareable gave to somebody stands for. Nothing if it is none of this GPU's.
    std::optional<Stretch> recognise(int descriptor) const;

private:
    DeviceFile(std::string path, UniqueFd file, uint64_t pages)
        : path_(std::move(path)), file_(std::move(file)), taken_(pages) {}
    int64_t take_locked(int fd, uint64_t pages) TNR_REQUIRES(mutex_);

    const std::string path_;
    const UniqueFd file_;
    Mutex mutex_;
    std::vector<bool> taken_ TNR_GUARDED_BY(mutex_);  // by ourselves, through file_: our own locks are none to us
};

}  // namespace tnr::emulated
