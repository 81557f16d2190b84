// See images.hpp.
#include "gpu_server/worker/images.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/worker/supervisor_link.hpp"

namespace tnr::worker {

static constexpr size_t zeros_behind = 16;  // as far as a driver that looks for the end of something may read

static size_t whole_pages(size_t bytes) {
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

CodeImage::CodeImage(wire::Bytes bytes) : owned_(std::move(bytes)) {
    size_ = owned_.size();
    owned_.resize(size_ + zeros_behind);
    start_ = owned_.data();
}

CodeImage::CodeImage(CodeImage&& other) noexcept
    : owned_(std::move(other.owned_)),
      file_(std::move(other.file_)),
      start_(std::exchange(other.start_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

CodeImage::~CodeImage() {
    if (mapped_ > 0) munmap(const_cast<std::byte*>(start_), mapped_);
}

// Over a reservation that is a little longer: a file that fills its last page has no zeros behind it.
std::optional<CodeImage> CodeImage::map(UniqueFd file, size_t size) {
    struct stat status {};
    if (size == 0 || fstat(file.get(), &status) != 0 || static_cast<uint64_t>(status.st_size) < size)
        return std::nullopt;
    CodeImage image;
    size_t reserved = whole_pages(size + zeros_behind);
    void* start = mmap(nullptr, reserved, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return std::nullopt;
    image.start_ = static_cast<const std::byte*>(start);
    image.mapped_ = reserved;
    image.size_ = size;
    // Populated: all of it is about to be read, and one fault per page costs more than the reading.
    constexpr int flags = MAP_PRIVATE | MAP_FIXED | MAP_POPULATE;
    if (mmap(start, size, PROT_READ, flags, file.get(), 0) == MAP_FAILED) return std::nullopt;
    image.file_ = std::move(file);
    return image;
}

void ImageOffer::answered(UniqueFd file) {
    LockGuard lock(mutex_);
    has_answer_ = true;
    file_ = std::move(file);
    answered_.notify_all();
}

std::optional<CodeImage> ImageOffer::wait(SupervisorLink& supervisor) {
    UniqueFd file;
    {
        UniqueLock lock(mutex_);
        answered_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return has_answer_; });
        file = std::move(file_);
    }
    if (!file) return std::nullopt;
    auto image = CodeImage::map(std::move(file), bytes_);
    if (image) {
        auto all = image->bytes();
        if (wire::hash_of_image({&all, 1}) == hash_) return image;
    }
    supervisor.image_is_damaged(hash_);
    return std::nullopt;
}

bool IncomingImages::Incoming::append(std::span<const std::byte> piece) {
    if (received == 0 && total >= wire::offered_image_bytes_min)
        file.reset(memfd_create("code image", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) {
        bytes.reserve(std::min<size_t>(total, wire::offered_image_bytes_min));
        bytes.insert(bytes.end(), piece.begin(), piece.end());
    } else {
        for (auto left = piece; !left.empty();) {
            auto written =
                pwrite(file.get(), left.data(), left.size(), static_cast<off_t>(received + piece.size() - left.size()));
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return false;
            left = left.subspan(static_cast<size_t>(written));
        }
    }
    received += piece.size();
    return true;
}

CUresult IncomingImages::piece(uint64_t number, uint64_t offset, uint64_t total, std::span<const std::byte> bytes) {
    auto found = images_.find(number);
    if (found == images_.end()) {
        if (images_.size() >= wire::incoming_images_max) return CUDA_ERROR_OUT_OF_MEMORY;
        found = images_.try_emplace(number).first;
    }
    auto& image = found->second;
    if (image.received == 0) image.total = total;
    bool fits = total <= wire::image_bytes_max && total == image.total && offset == image.received && !bytes.empty() &&
                offset + bytes.size() <= total;
    bool room = bytes.size() <= bytes_max_ - received_;
    if (!fits || !room || !image.append(bytes)) {
        forget(number);
        return fits ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    received_ += bytes.size();
    return CUDA_SUCCESS;
}

CUresult IncomingImages::offered(uint64_t number, const wire::ImageHash& hash, uint64_t total,
                                 SupervisorLink& supervisor) {
    if (total == 0 || total > wire::image_bytes_max || images_.contains(number)) return CUDA_ERROR_INVALID_VALUE;
    if (images_.size() >= wire::incoming_images_max) return CUDA_ERROR_OUT_OF_MEMORY;
    auto offer = std::make_shared<ImageOffer>(hash, total);
    images_[number].offer = offer;
    supervisor.find_image(hash, total, [offer](UniqueFd file) { offer->answered(std::move(file)); });
    return CUDA_SUCCESS;
}

bool IncomingImages::only_offered(uint64_t number, uint64_t total) const {
    auto found = images_.find(number);
    if (found == images_.end() || found->second.received > 0) return false;
    return found->second.offer && found->second.offer->bytes() == total;
}

std::shared_ptr<ImageOffer> IncomingImages::offer(uint64_t number) const {
    auto found = images_.find(number);
    return found == images_.end() ? nullptr : found->second.offer;
}

std::optional<CodeImage> IncomingImages::take(uint64_t number, uint64_t total) {
    auto found = images_.find(number);
    if (found == images_.end()) return std::nullopt;
    auto image = std::move(found->second);
    forget(number);
    if (image.received == 0 || image.received != total || image.total != total) return std::nullopt;
    if (!image.file) return CodeImage(std::move(image.bytes));
    // From here on nobody can change it, whoever it is lent to.
    (void)fcntl(image.file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return CodeImage::map(std::move(image.file), total);
}

void IncomingImages::forget(uint64_t number) {
    auto found = images_.find(number);
    if (found == images_.end()) return;
    received_ -= found->second.received;
    images_.erase(found);
}

}  // namespace tnr::worker
