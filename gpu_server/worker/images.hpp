// Code images on their way to the driver: received in pieces, or offered by name and found in the server's cache.
//
// A large image is received into a memory file and sealed before it is read. The supervisor can then keep it for later
// programs and lend it to them at once: nobody can change it any more.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"
#include "gpu_client/protocol/image_hash.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_client/protocol/wire.hpp"

namespace tnr::worker {

class SupervisorLink;

// A complete image in memory. Readable zeros follow its bytes: PTX needs a NUL there, whatever the client sent.
class CodeImage {
public:
    explicit CodeImage(wire::Bytes bytes);
    // Maps the first `size` bytes; nothing if they are not there.
    static std::optional<CodeImage> map(UniqueFd file, size_t size);
    CodeImage(CodeImage&& other) noexcept;
    CodeImage& operator=(CodeImage&&) = delete;
    ~CodeImage();

    std::span<const std::byte> bytes() const { return {start_, size_}; }
    size_t size() const { return size_; }
    int file() const { return file_.get(); }  // the file it is mapped from; -1: none

private:
    CodeImage() = default;
    wire::Bytes owned_;
    UniqueFd file_;
    const std::byte* start_ = nullptr;
    size_t size_ = 0;
    size_t mapped_ = 0;
};

// What the client offered, and the supervisor's answer, which comes on another thread.
class ImageOffer {
public:
    ImageOffer(const wire::ImageHash& hash, uint64_t bytes) : hash_(hash), bytes_(bytes) {}
    const wire::ImageHash& hash() const { return hash_; }
    uint64_t bytes() const { return bytes_; }

    void answered(UniqueFd file);  // empty: the server does not have it
    // Blocks until the answer is there. Returns the image only if its hash is the offered one; the supervisor is told
    // of a file with another.
    std::optional<CodeImage> wait(SupervisorLink& supervisor);

private:
    const wire::ImageHash hash_;
    const uint64_t bytes_;
    Mutex mutex_;
    Condition answered_;
    bool has_answer_ TNR_GUARDED_BY(mutex_) = false;
    UniqueFd file_ TNR_GUARDED_BY(mutex_);
};

// By the number under which an image travels. Used by the dispatcher, or while it holds all records back
// (WorkerSession::run_aside).
class IncomingImages {
public:
    void limit_bytes(uint64_t most) { bytes_max_ = most; }  // for tests
    CUresult piece(uint64_t number, uint64_t offset, uint64_t total, std::span<const std::byte> bytes);
    // Asks the supervisor whether it has the image.
    CUresult offered(uint64_t number, const wire::ImageHash& hash, uint64_t total, SupervisorLink& supervisor);

    bool only_offered(uint64_t number, uint64_t total) const;
    std::shared_ptr<ImageOffer> offer(uint64_t number) const;  // may be null
    // Returns the image if all of it has come, and forgets it in any case.
    std::optional<CodeImage> take(uint64_t number, uint64_t total);
    void forget(uint64_t number);

private:
    struct Incoming {
        std::shared_ptr<ImageOffer> offer;
        uint64_t total = 0, received = 0;
        wire::Bytes bytes;  // of a small one
        UniqueFd file;      // of a large one
        bool append(std::span<const std::byte> piece);
    };
    std::unordered_map<uint64_t, Incoming> images_;
    uint64_t received_ = 0;  // bytes of all images
    uint64_t bytes_max_ = wire::incoming_images_bytes_max;
};

}  // namespace tnr::worker
