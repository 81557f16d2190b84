// Foreign bytes as a message of a worker, which its tenant may have taken over.
#include <cstddef>
#include <cstdint>

#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/worker_messages.hpp"

using namespace tnr::server;

static bool sound_name(const std::string& name) {
    return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    auto message = parse_worker_message({reinterpret_cast<const char*>(data), size});
    if (!message) return 0;
    // What the parser promised holds.
    bool sound = true;
    if (auto* use = std::get_if<WorkerUse>(&*message))
        for (auto value : {use->bytes_up, use->bytes_down, use->busy_ms}) sound &= value >= 0 && value <= claim_use_max;
    if (auto* last = std::get_if<LastWord>(&*message))
        sound &= last->why.size() <= foreign_line_bytes_max && last->why.find('\n') == std::string::npos;
    if (auto* given = std::get_if<ExchangeMessage>(&*message))
        sound &= std::visit([](auto& one) { return sound_name(one.name); }, *given);
    if (!sound) __builtin_trap();
    return 0;
}
