// What a program passes to a compiling call: options, and the buffers it wants the logs written to.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "gpu_client/cuda/libraries.hpp"
#include "gpu_client/protocol/code_records.hpp"

namespace tnr::cuda {

// As the program passed them; `values` is also written to. Check sound() before use.
struct JitArguments {
    unsigned count = 0;
    CUjit_option* options = nullptr;
    void** values = nullptr;

    bool sound() const { return count == 0 || (options && values); }
};

// The options that can be sent: those whose values are plain numbers.
inline wire::JitOptions plain_jit_options(const JitArguments& given) {
    wire::JitOptions plain;
    for (unsigned i = 0; i < given.count && plain.size() < wire::jit_options_max; ++i)
        if (wire::is_plain_jit_option(given.options[i])) plain.push_back({given.options[i], value_of(given.values[i])});
    return plain;
}

// What compiling tells the program: its logs, and how long it took.
class JitLogs {
public:
    // The program's arrays and buffers must last as long as logs are written.
    explicit JitLogs(const JitArguments& given) {
        for (unsigned i = 0; i < given.count; ++i)
            if (given.options[i] == CU_JIT_WALL_TIME) wall_time_ = &given.values[i];
        errors_.find(given, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
        information_.find(given, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
    }
    JitLogs() = default;
    bool wanted() const { return errors_.start || information_.start || wall_time_; }
    // Who keeps the object between calls says when each begins: only what passes within calls is the compiler's time.
    void begin_call() { began_ = Clock::now(); }
    void write(const wire::JitLogs& said) {
        errors_.write(said.errors);
        information_.write(said.information);
        if (wall_time_) write_wall_time();
    }

private:
    using Clock = std::chrono::steady_clock;

    // The option's value becomes a float of milliseconds.
    void write_wall_time() {
        auto now = Clock::now();
        spent_ += now - std::exchange(began_, now);
        *wall_time_ = handle_of<void*>(std::bit_cast<uint32_t>(spent_.count()));
    }

    struct Buffer {
        char* start = nullptr;
        size_t size = 0;
        void** written = nullptr;  // the option whose value becomes the length

        void find(const JitArguments& given, CUjit_option buffer_id, CUjit_option size_id) {
            for (unsigned i = 0; i < given.count; ++i) {
                if (given.options[i] == buffer_id) start = static_cast<char*>(given.values[i]);
                if (given.options[i] != size_id) continue;
                size = static_cast<unsigned>(value_of(given.values[i]));
                written = &given.values[i];
            }
        }
        void write(std::string_view text) {
            size_t length = start && size > 0 ? std::min(size - 1, text.size()) : 0;
            if (start && size > 0) {
                std::memcpy(start, text.data(), length);
                start[length] = 0;
            }
            if (written) *written = handle_of<void*>(length);
        }
    };
    Buffer errors_, information_;
    void** wall_time_ = nullptr;
    Clock::time_point began_ = Clock::now();
    std::chrono::duration<float, std::milli> spent_{};
};

}  // namespace tnr::cuda
