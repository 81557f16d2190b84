// The answer by which cudart convinces itself that it talks to a driver: an HMAC over things both sides know, with MD2
// as the hash (RFC 1319, RFC 2104).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

using Digest = std::array<uint8_t, 16>;
Digest md2(std::span<const uint8_t> message);
Digest hmac_md2(const Digest& key, std::span<const uint8_t> message);

struct IntegrityDevice {
    CUuuid uuid;
    int32_t pci_domain, pci_bus, pci_device;
};

struct IntegrityQuestion {
    uint32_t driver_version = 0;
    uint32_t version = 0;  // as the caller gives it: the runtime's version plus 0, 1 or 2
    uint32_t process = 0;
    uint32_t thread = 0;                                           // low half of pthread_self()
    uint64_t cudart_table = 0, integrity_table = 0, function = 0;  // addresses that we have handed out
    uint64_t unix_seconds = 0;
    std::vector<IntegrityDevice> devices;
};
Digest integrity_answer(const IntegrityQuestion& question);

}  // namespace tnr::cuda
