// What the driver has said lately, for programs that ask (cuLogs...): the warnings and errors of log.hpp. Their own functions
// are called from keep_log(), so no lock may be held there.
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/guarded.hpp"

namespace tnr::cuda {

namespace {

constexpr size_t kept_bytes_max = 25600;  // as cuda.h promises
constexpr size_t callbacks_max = 1024;
constexpr std::string_view older_left_out = "(older messages are left out)\n";

struct Callback {
    CUlogsCallback function;
    void* data;
};
struct Logs {
    Mutex mutex;
    std::deque<std::string> lines TNR_GUARDED_BY(mutex);  // each with its newline
    size_t bytes TNR_GUARDED_BY(mutex) = 0;
    CUlogIterator next TNR_GUARDED_BY(mutex) = 0;  // the number of the next line
    std::map<uint64_t, Callback> callbacks TNR_GUARDED_BY(mutex);
    uint64_t next_callback TNR_GUARDED_BY(mutex) = 1;
};
Logs& logs() {
    static auto* all = new Logs;
    return *all;
}

// What is left of the lines from the iterator on, and moves it behind them. At most `room` bytes: the newest.
std::string take(CUlogIterator* from, size_t room) {
    LockGuard lock(logs().mutex);
    auto& lines = logs().lines;
    const auto oldest = static_cast<CUlogIterator>(logs().next - lines.size());
    const CUlogIterator wanted = from ? *from : oldest;
    CUlogIterator first = logs().next;
    size_t bytes = 0;
    while (first != oldest && first != wanted && bytes + lines[first - 1 - oldest].size() <= room)
        bytes += lines[--first - oldest].size();
    const bool misses_some = first != wanted && wanted != logs().next;
    if (misses_some && first != logs().next && bytes + older_left_out.size() > room)
        bytes -= lines[first++ - oldest].size();  // for the word that some are missing
    std::string text;
    if (misses_some && first != logs().next) text = older_left_out;
    for (auto at = first; at != logs().next; ++at) text += lines[at - oldest];
    if (from && (!text.empty() || wanted == logs().next)) *from = logs().next;
    return text;
}

bool anything_from(const CUlogIterator* from) {
    LockGuard lock(logs().mutex);
    return from ? *from != logs().next : !logs().lines.empty();
}

}  // namespace

static void keep_log(bool is_error, std::string_view text) {
    std::map<uint64_t, Callback> callbacks;
    std::string line(text);
    line += '\n';
    {
        LockGuard lock(logs().mutex);
        logs().bytes += line.size();
        logs().lines.push_back(line);
        ++logs().next;
        while (logs().bytes > kept_bytes_max) {
            logs().bytes -= logs().lines.front().size();
            logs().lines.pop_front();
        }
        callbacks = logs().callbacks;
    }
    line.pop_back();
    for (auto& [number, callback] : callbacks)
        callback.function(callback.data, is_error ? CU_LOG_LEVEL_ERROR : CU_LOG_LEVEL_WARNING, line.data(),
                          line.size());
}

[[maybe_unused]] static const bool listens = (log_listener = keep_log, true);

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuLogsRegisterCallback(CUlogsCallback function, void* data, CUlogsCallbackHandle* out) {
    return guarded_always("cuLogsRegisterCallback", [&]() -> CUresult {
        if (!function) return CUDA_ERROR_INVALID_VALUE;
        LockGuard lock(logs().mutex);
        if (logs().callbacks.size() >= callbacks_max) return CUDA_ERROR_OUT_OF_MEMORY;
        const uint64_t number = logs().next_callback++;
        logs().callbacks[number] = {function, data};
        if (out) *out = reinterpret_cast<CUlogsCallbackHandle>(number);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
    return guarded_always("cuLogsUnregisterCallback", [&]() -> CUresult {
        LockGuard lock(logs().mutex);
        return logs().callbacks.erase(reinterpret_cast<uint64_t>(handle)) != 0 ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult CUDAAPI cuLogsCurrent(CUlogIterator* out, unsigned int flags) {
    return guarded_always("cuLogsCurrent", [&]() -> CUresult {
        if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        LockGuard lock(logs().mutex);
        *out = logs().next;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuLogsDumpToFile(CUlogIterator* from, const char* path, unsigned int flags) {
    return guarded_always("cuLogsDumpToFile", [&]() -> CUresult {
        if (!path || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        auto* file = std::fopen(path, "we");
        if (!file) return CUDA_ERROR_INVALID_VALUE;
        auto text = take(from, kept_bytes_max + older_left_out.size());
        bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
        written &= std::fclose(file) == 0;
        return written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    });
}

CUresult CUDAAPI cuLogsDumpToMemory(CUlogIterator* from, char* buffer, size_t* size, unsigned int flags) {
    return guarded_always("cuLogsDumpToMemory", [&]() -> CUresult {
        if (!buffer || !size || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        const bool anything = anything_from(from);
        auto text = *size != 0 ? take(from, *size - 1) : std::string();
        if (*size != 0) std::memcpy(buffer, text.c_str(), text.size() + 1);
        *size = text.size();
        return anything && text.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    });
}

}  // extern "C"
