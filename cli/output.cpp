// See output.hpp.
#include "cli/output.hpp"

#include <unistd.h>

#include <cerrno>

namespace tnr::cli {

Output::int_type Output::overflow(int_type letter) {
    if (sync() != 0) return traits_type::eof();
    if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
    return sputc(traits_type::to_char_type(letter));
}

int Output::sync() {
    for (const char* at = pbase(); !failed_ && at < pptr();) {
        ssize_t written = ::write(fd_, at, static_cast<size_t>(pptr() - at));
        if (written > 0) at += written;
        if (written < 0 && errno != EINTR) failed_ = errno;
    }
    empty();
    errno = failed_;
    return failed_ ? -1 : 0;
}

}  // namespace tnr::cli
