// Options and logs of the driver's compiler, for calls that compile.
#pragma once

#include <string>
#include <vector>

#include "driver_table.hpp"
#include "gpu_client/protocol/code_records.hpp"

namespace tnr::worker {

// The client's options; only those whose values are plain numbers travel.
struct JitOptions {
    JitOptions() = default;
    explicit JitOptions(const wire::JitOptions& given) {
        for (auto& option : given)
            if (wire::is_plain_jit_option(option.number))
                add(static_cast<CUjit_option>(option.number), reinterpret_cast<void*>(option.value));
    }

    std::vector<CUjit_option> ids;
    std::vector<void*> values;

    void add(CUjit_option id, void* value) {
        ids.push_back(id);
        values.push_back(value);
    }
    unsigned count() const { return static_cast<unsigned>(ids.size()); }
};

// Buffers for the compiler's logs, which the driver cuts if they are longer. They never move: the driver may still
// write.
class JitLogs {
public:
    JitLogs() = default;
    JitLogs(const JitLogs&) = delete;
    JitLogs& operator=(const JitLogs&) = delete;

    void ask_for(JitOptions& options) {
        options.add(CU_JIT_ERROR_LOG_BUFFER, errors_.data());
        options.add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(bytes_max));
        options.add(CU_JIT_INFO_LOG_BUFFER, information_.data());
        options.add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(bytes_max));
    }
    // Views of the logs.
    wire::JitLogs said() const { return {errors_.c_str(), information_.c_str()}; }

private:
    static constexpr size_t bytes_max = 8192;
    std::string errors_ = std::string(bytes_max, '\0'), information_ = std::string(bytes_max, '\0');
};

}  // namespace tnr::worker
