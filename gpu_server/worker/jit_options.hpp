// Options and logs of the driver's compiler, for calls that compile.
#pragma once

#include <string>
#include <vector>

#include "cuda_calls.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_server/worker/decoder.hpp"

namespace tnr::worker {

// The client's, of which only numbers travel.
struct JitOptions {
    std::vector<CUjit_option> ids;
    std::vector<void*> values;

    void add(CUjit_option id, void* value) {
        ids.push_back(id);
        values.push_back(value);
    }
    void read(Decoder& in) {
        auto count = in.get<uint32_t>();
        if (count > wire::jit_options_max) return in.refuse(CUDA_ERROR_INVALID_VALUE);
        for (uint32_t i = 0; i < count; ++i) {
            auto id = in.get<uint32_t>();
            auto value = in.get<uint64_t>();
            if (wire::is_plain_jit_option(id)) add(static_cast<CUjit_option>(id), reinterpret_cast<void*>(value));
        }
    }
    unsigned count() const { return static_cast<unsigned>(ids.size()); }
};

// What the driver has to say; it cuts what is longer. Stays where it is while the driver may write.
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
    void write(wire::Writer& out) const {
        out.put_string(errors_.c_str());
        out.put_string(information_.c_str());
    }

private:
    static constexpr size_t bytes_max = 8192;
    std::string errors_ = std::string(bytes_max, '\0'), information_ = std::string(bytes_max, '\0');
};

}  // namespace tnr::worker
