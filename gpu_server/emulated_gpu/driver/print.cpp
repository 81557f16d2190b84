#include "gpu_server/emulated_gpu/driver/print.hpp"

#include <atomic>
#include <cstdio>
#include <string>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/abi.hpp"

namespace tnr::emulated {
namespace {

// The driver's FIFO has 1 MiB and then loses lines. We hand them on early instead: nothing is lost, and
// memory stays bounded.
constexpr size_t buffer_bytes_max = size_t{1} << 20;

struct Printer {
    Mutex mutex;
    Mutex write_mutex;  // held while writing, so that two flushes cannot swap
    std::string text TNR_GUARDED_BY(mutex);
    std::atomic<bool> any{false};  // most flushes have nothing to do and take no lock
    void (*print)(void*, const char*, size_t) TNR_GUARDED_BY(write_mutex) = nullptr;
    void* context TNR_GUARDED_BY(write_mutex) = nullptr;
};

Printer& printer() {
    static Printer& instance = *new Printer;
    return instance;
}

}  // namespace

void buffer_print(std::string_view text) {
    Printer& p = printer();
    bool full;
    {
        LockGuard lock(p.mutex);
        p.text += text;
        p.any = true;
        full = p.text.size() > buffer_bytes_max;
    }
    if (full) flush_print();
}

void flush_print() {
    Printer& p = printer();
    if (!p.any) return;
    LockGuard write_lock(p.write_mutex);
    std::string text;
    {
        LockGuard lock(p.mutex);
        text.swap(p.text);
        p.any = false;
    }
    if (text.empty()) return;
    if (p.print)
        p.print(p.context, text.data(), text.size());
    else
        fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace tnr::emulated

void tnr_emulated_set_print(void (*print)(void*, const char*, size_t), void* context) {
    auto& p = tnr::emulated::printer();
    tnr::LockGuard lock(p.write_mutex);
    p.print = print;
    p.context = context;
}
