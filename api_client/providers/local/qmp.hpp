// Speaks to a running QEMU through its QMP socket (JSON lines).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::local {

inline constexpr const char* qmp_socket_name = "qmp.sock";  // in the machine's folder

// What one line from QEMU means for whoever has sent `command` and waits for its answer: nothing yet (an event, the
// greeting, what is no JSON), that it is done, or an Error.
std::optional<Result<>> parse_qmp_answer(const std::string& line, const std::string& command);

// One command, such as "system_powerdown"; `arguments` is a JSON object. An Error when QEMU does not answer in seconds.
Result<> qmp_command(const std::filesystem::path& machine_folder, const std::string& command,
                     const std::string& arguments = "{}");

}  // namespace tnr::local
