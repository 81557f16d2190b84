// The buffers that a program gives a compiling call to write its logs to.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

class JitLogs {
public:
    // `options` and `values` as the program gave them; they must last.
    JitLogs(unsigned count, CUjit_option* options, void** values) {
        errors_.find(count, options, values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
        information_.find(count, options, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
    }
    JitLogs() = default;
    void write(const std::string& errors, const std::string& information) {
        errors_.write(errors);
        information_.write(information);
    }

private:
    struct Buffer {
        char* start = nullptr;
        size_t size = 0;
        void** written = nullptr;  // the option whose value becomes the length

        void find(unsigned count, CUjit_option* options, void** values, CUjit_option buffer_id, CUjit_option size_id) {
            for (unsigned i = 0; options && values && i < count; ++i) {
                if (options[i] == buffer_id) start = static_cast<char*>(values[i]);
                if (options[i] != size_id) continue;
                size = static_cast<unsigned>(value_of(values[i]));
                written = &values[i];
            }
        }
        void write(const std::string& text) {
            size_t length = start && size > 0 ? std::min(size - 1, text.size()) : 0;
            if (start && size > 0) {
                std::memcpy(start, text.data(), length);
                start[length] = 0;
            }
            if (written) *written = handle_of<void*>(length);
        }
    };
    Buffer errors_, information_;
};

}  // namespace tnr::cuda
