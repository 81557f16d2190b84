// Ownership of things that C libraries and the kernel hand out.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace tnr {

// Owns a handle from a C library. `Release` is that library's own function for freeing it.
template <class T, auto Release>
struct Releaser {
    void operator()(T* handle) const noexcept { Release(handle); }
};
template <class T, auto Release>
using Handle = std::unique_ptr<T, Releaser<T, Release>>;

// Owns a file descriptor; -1 means none.
class UniqueFd {
public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        reset(other.release());
        return *this;
    }
    ~UniqueFd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    int release() { return std::exchange(fd_, -1); }
    void reset(int fd = -1) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = fd;
    }

private:
    int fd_ = -1;
};

}  // namespace tnr
