// Any text as a machine's record, the file of pools, or a pool's address: refused, or something that holds what its
// readers rely on.
#include <cstddef>
#include <cstdint>

#include "cli/logins.hpp"
#include "cli/records.hpp"
#include "gpu_client/protocol/control.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tnr::cli;
    std::string text(reinterpret_cast<const char*>(data), size);
    if (auto record = parse_record(text))
        if (record->count < 1 || record->count > tnr::control::gpus_per_claim_max || to_string(record->step).empty())
            __builtin_trap();
    if (auto logins = parse_logins(text))
        for (const auto& login : *logins)
            if (!tnr::wire::looks_like_key(login.keys.own.secret_key)) __builtin_trap();
    if (auto endpoint = parse_endpoint(text))
        if (endpoint->port < 1 || endpoint->port > 65535 || endpoint->host.empty()) __builtin_trap();
    return 0;
}
