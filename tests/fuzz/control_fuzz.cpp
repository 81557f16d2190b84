// Foreign bytes as a control request.
#include <cstddef>
#include <cstdint>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/request.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tnr::server;
    uint64_t id = 0;
    auto request = parse_request(data, size, id);
    if (!request) {
        if (error_text(id, request.error()).empty()) __builtin_trap();  // whatever was wrong can be told
        return 0;
    }
    // What the parser promised holds.
    bool sound = request->id == id && request->count >= 1 && request->count <= tnr::control::gpus_per_claim_max &&
                 request->machine.size() <= tnr::control::name_bytes_max &&
                 request->process.size() <= process_name_bytes_max;
    if (!sound) __builtin_trap();
    return 0;
}
