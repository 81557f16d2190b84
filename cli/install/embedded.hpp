// The files that `tnr` carries inside itself, so that it alone can turn a machine into one with a GPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tnr::install {

struct Embedded {
    std::string name;        // "libcuda.so.1"
    std::string_view bytes;  // empty when this tnr was built without it
    std::string sha256() const;
};

// Those that are in this build and go onto a machine when it is made.
std::vector<Embedded> embedded_files();
// What switches a machine off (timers.hpp): a shell script and the service that runs it.
std::string_view idle_program();
std::string_view idle_service();
// What `tnr sync` brings to the machines that it copies to and from (cli/sync/agent.hpp).
Embedded sync_server();
std::string sha256(std::string_view bytes);  // hex, as sha256sum prints it

}  // namespace tnr::install
