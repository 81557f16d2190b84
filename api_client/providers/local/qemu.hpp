// Starts the QEMU process of a machine. It is a daemon of its own: it survives the tnr that started it, a closed
// terminal and a logout, and ends when the guest powers off or we end it.
#pragma once

#include <filesystem>

#include "api_client/base/result.hpp"
#include "api_client/providers/local/machine_store.hpp"

namespace tnr::local {

enum class Accelerator { kvm, emulation };

// How a machine reaches services on this host's loopback, under QEMU's user network.
inline constexpr const char* host_loopback_in_guest = "10.0.2.2";

// Returns the SSH port on 127.0.0.1: the record's own when it is free, so that what users wrote down stays true,
// else another one. Returns once QEMU runs the machine; its system boots from then on.
Result<int> start_qemu(const std::filesystem::path& folder, const Record& record, Accelerator accelerator);

// A TCP port on 127.0.0.1 that nobody listens on at this moment.
Result<int> free_port();

}  // namespace tnr::local
