// See arriving.hpp.
#include "cli/sync/engine/arriving.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "api_client/base/interrupt.hpp"
#include "cli/sync/engine/old_files.hpp"
#include "cli/sync/engine/temporary.hpp"

namespace tnr::sync {
namespace {

constexpr size_t copy_bytes = size_t{256} << 10;
// Longer runs of zeros come as several; nothing that one message asks for may take seconds.
constexpr uint64_t zeros_max = uint64_t{64} << 20;

int write_at(int fd, const char* bytes, size_t count, uint64_t at) {
    while (count > 0) {
        ssize_t took = ::pwrite(fd, bytes, count, static_cast<off_t>(at));
        if (took < 0 && errno == EINTR) continue;
        if (took <= 0) return took < 0 ? errno : ENOSPC;
        bytes += took, at += static_cast<uint64_t>(took), count -= static_cast<size_t>(took);
    }
    return 0;
}

// The file and its content, under its temporary name; 0 or an errno, and nothing is left.
int write_small(const Small& file) {
    UniqueFd fd{
        ::openat(file.place.fd(), file.temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!fd) return errno;
    if (int error = write_at(fd.get(), file.content.data(), file.content.size(), 0)) {
        ::unlinkat(file.place.fd(), file.temporary.c_str(), 0);
        return error;
    }
    return put_in_place(file.place, fd.get(), file.temporary, file.item, file.replaces_folder);
}

}  // namespace

Names::Names() : run_(new_run()), first_number_(first_number()) {}

std::string Names::next() {
    return temporary_name("", run_, ++number_);
}

std::string Names::next(const std::string& place, const Item& item) {
    return item.size < resume_bytes_min ? next() : temporary_name("", identity(place, item), first_number_ + ++number_);
}

Arriving::Arriving(uint32_t index, Item item, Place place, bool replaces_folder)
    : index_(index), item_(std::move(item)), place_(std::move(place)), replaces_folder_(replaces_folder) {}

Arriving::~Arriving() {
    if (at_ < resume_bytes_min || item_.size < resume_bytes_min) throw_away();
}

void Arriving::throw_away() {
    if (!temporary_.empty()) ::unlinkat(place_.fd(), temporary_.c_str(), 0);
    temporary_.clear();
}

int Arriving::open(Names& names) {
    std::string name = names.next(place_.name, item_);
    fd_.reset(::openat(place_.fd(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd_) return errno;
    (void)lock_part(fd_.get());
    temporary_ = name;
    return 0;
}

int Arriving::add(std::string_view bytes) {
    if (bytes.size() > item_.size - at_) return EPROTO;
    digest_.add(bytes);
    if (int error = write_at(fd_.get(), bytes.data(), bytes.size(), at_)) return error;
    at_ += bytes.size();
    return 0;
}

int Arriving::add_zeros(uint64_t count) {
    if (count > zeros_max || count > item_.size - at_) return EPROTO;
    digest_.add_zeros(count);
    at_ += count;
    return 0;
}

ssize_t Arriving::read_old(uint64_t at, char* to, size_t count) const {
    if (!old_ || at > old_size_) return -1;
    return ::pread(old_.get(), to, std::min<uint64_t>(count, old_size_ - at), static_cast<off_t>(at));
}

int Arriving::copy(uint64_t from, uint64_t count) {
    if (from > old_size_ || count > old_size_ - from) return EPROTO;
    piece_.resize(copy_bytes);
    while (count > 0) {
        ssize_t got = read_old(from, piece_.data(), std::min<uint64_t>(count, piece_.size()));
        // It has been cut short meanwhile; the digest will say so, and the file is then sent whole.
        if (got <= 0) return 0;
        if (int error = add({piece_.data(), static_cast<size_t>(got)})) return error;
        from += static_cast<uint64_t>(got), count -= static_cast<uint64_t>(got);
    }
    return 0;
}

int Arriving::patch(uint64_t from, bool last, std::string_view delta) {
    if (!patch_) {
        patch_from_ = from;
        patch_ = std::make_unique<DeltaReader>(
            [this](uint64_t at, char* to, size_t count) {
                return at > old_size_ ? ssize_t{-1} : read_old(patch_from_ + at, to, count);
            },
            [this](std::string_view bytes) { return (error_ = add(bytes)) == 0; });
    }
    auto taken = from == patch_from_ ? patch_->take(delta, last) : Result<>{nonsense()};
    if (last) patch_.reset();
    return taken ? 0 : error_ ? error_ : EPROTO;
}

bool Arriving::whole(std::string_view digest) {
    return at_ == item_.size && !patch_ && digest == digest_.value();
}

int Arriving::settle() {
    // Zeros at the end are a hole until now.
    if (::ftruncate(fd_.get(), static_cast<off_t>(item_.size)) != 0) return errno;
    std::string temporary = std::exchange(temporary_, "");
    return put_in_place(place_, fd_.get(), temporary, item_, replaces_folder_);
}

SmallFiles::SmallFiles() {
    interrupt::SignalsBlocked blocked;
    for (size_t number = 0; number < threads; ++number)
        workers_[number] = std::thread([this, number] { work(number); });
}

SmallFiles::~SmallFiles() {
    {
        LockGuard lock(mutex_);
        leaving_ = true;
        for (auto& each : more_) each.notify_all();
    }
    for (auto& worker : workers_) worker.join();
}

void SmallFiles::put(uint32_t folder, Small file) {
    size_t number = folder % threads;
    UniqueLock lock(mutex_);
    fewer_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return waiting_[number].size() < waiting_max; });
    waiting_[number].push_back(std::move(file));
    ++writing_;
    if (waiting_[number].size() == 1) more_[number].notify_one();
}

void SmallFiles::settle() {
    UniqueLock lock(mutex_);
    fewer_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return writing_ == 0; });
}

std::optional<SmallFiles::Failure> SmallFiles::failure() {
    LockGuard lock(mutex_);
    return failure_;
}

void SmallFiles::work(size_t number) {
    std::deque<Small> taken;
    for (;;) {
        {
            UniqueLock lock(mutex_);
            auto& mine = waiting_[number];
            more_[number].wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return !mine.empty() || leaving_; });
            if (mine.empty() || leaving_) return;
            taken.swap(mine);
            fewer_.notify_all();
        }
        std::optional<Failure> failed;
        for (const auto& file : taken)
            if (int error = failed ? 0 : write_small(file)) failed = Failure{file.index, error};
        LockGuard lock(mutex_);
        if (!failure_) failure_ = failed;
        writing_ -= taken.size();
        taken.clear();
        fewer_.notify_all();
    }
}

}  // namespace tnr::sync
