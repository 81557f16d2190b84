// Speaks to a running QEMU through its QMP socket (JSON lines).
#pragma once

#include <filesystem>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::local {

inline constexpr const char* qmp_socket_name = "qmp.sock";  // in the machine's folder

// One command without arguments, such as "system_powerdown". An Error when QEMU does not answer in seconds.
Result<> qmp_command(const std::filesystem::path& machine_folder, const std::string& command);

}  // namespace tnr::local
