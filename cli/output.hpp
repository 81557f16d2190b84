// Standard output that knows why it failed: a std::ostream only says that it did.
#pragma once

#include <array>
#include <streambuf>

namespace tnr::cli {

// Writes to `fd`, which it does not own. Once a write has failed everything after it is thrown away, and each flush fails
// with the errno of that write.
class Output : public std::streambuf {
public:
    explicit Output(int fd) : fd_(fd) { empty(); }

protected:
    int_type overflow(int_type letter) override;
    int sync() override;

private:
    void empty() { setp(bytes_.data(), bytes_.data() + bytes_.size()); }

    const int fd_;
    int failed_ = 0;  // an errno
    std::array<char, 1 << 16> bytes_;
};

}  // namespace tnr::cli
