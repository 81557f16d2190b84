// Bringing our software onto a machine over SSH. Idempotent: what is there already, by its hash, is not sent again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/install/embedded.hpp"
#include "cli/ssh/client.hpp"
#include "gpu_client/protocol/gpu_config.hpp"

namespace tnr::install {

struct File {
    std::string path;  // on the machine
    unsigned mode = 0;
    std::string_view bytes;
};

// What a machine needs: the embedded files in their places, the linker's configuration, a setting of the kernel, a device
// file that programs look for, /etc/tnr/gpu.json (`config_text`). The views point into `embedded` and `config_text`.
std::vector<File> files_to_install(const std::vector<Embedded>& embedded, const std::string& config_text);

// The same for a machine that switches itself off: the program, its service, and `config_text` for it. The views point
// into this `tnr` and `config_text`.
std::vector<File> timer_files(const std::string& config_text);

// Makes the machine have them; the answer is the paths that were sent. Needs sudo there, as our login user has it.
Result<std::vector<std::string>> install(ssh::Client& client, const std::vector<File>& files,
                                         const std::function<void(const std::string&)>& say);

// /etc/tnr/gpu.json alone, in one step: what programs started from then on read. Empty: there is none from then on.
Result<> configure(ssh::Client& client, const std::string& config_text);

}  // namespace tnr::install
