// See last_error.hpp. TNR_LOG=info or more talkative prints it, too, for programs other than ours.
#include "gpu_client/nvml/last_error.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api_client/base/mutex.hpp"

namespace tnr::nvml {

static Mutex mutex;
static char last[1024] TNR_GUARDED_BY(mutex);

void remember_error(const Error& error) {
    LockGuard lock(mutex);
    std::snprintf(last, sizeof last, "%s\n%s\n", error.what.c_str(), error.hint.c_str());
    auto* level = std::getenv("TNR_LOG");
    if (level && *level && std::strcmp(level, "error") != 0) std::fprintf(stderr, "tnr nvml: %s", last);
}

}  // namespace tnr::nvml

extern "C" __attribute__((visibility("default"))) int nvmlTnrLastError(char* text, unsigned length) {
    tnr::LockGuard lock(tnr::nvml::mutex);
    return std::snprintf(text, length, "%s", tnr::nvml::last);
}
