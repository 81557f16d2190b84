// When a file was written to last, and when it or what is known of it was changed: POSIX's names, and macOS's.
#pragma once

#include <sys/stat.h>

namespace tnr::sync {

#ifdef __APPLE__
inline const timespec& modified_at(const struct stat& file) {
    return file.st_mtimespec;
}
inline const timespec& changed_at(const struct stat& file) {
    return file.st_ctimespec;
}
#else
inline const timespec& modified_at(const struct stat& file) {
    return file.st_mtim;
}
inline const timespec& changed_at(const struct stat& file) {
    return file.st_ctim;
}
#endif

inline bool same_time(const timespec& one, const timespec& other) {
    return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

}  // namespace tnr::sync
