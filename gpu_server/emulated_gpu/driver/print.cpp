#include "gpu_server/emulated_gpu/driver/print.hpp"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>

#include "gpu_server/emulated_gpu/driver/abi.hpp"

namespace tnr::emulated {
namespace {

// The driver's FIFO has 1 MiB and then loses lines. We hand them on early instead: nothing is lost, and
// memory stays bounded.
constexpr size_t buffer_bytes_max = size_t{1} << 20;

struct Printer {
    std::mutex mutex;        // guards the text
    std::mutex write_mutex;  // held while writing, so that two flushes cannot swap
    std::string text;
    std::atomic<bool> any{false};  // most flushes have nothing to do and take no lock
    void (*print)(void*, const char*, size_t) = nullptr;
    void* context = nullptr;
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
        std::lock_guard lock(p.mutex);
        p.text += text;
        p.any = true;
        full = p.text.size() > buffer_bytes_max;
    }
    if (full) flush_print();
}

void flush_print() {
    Printer& p = printer();
    if (!p.any) return;
    std::lock_guard write_lock(p.write_mutex);
    std::string text;
    {
        std::lock_guard lock(p.mutex);
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
    std::lock_guard lock(p.write_mutex);
    p.print = print;
    p.context = context;
}
