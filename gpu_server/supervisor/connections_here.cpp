// See connections_here.hpp. The lines are described in proc(5):
//    0: 0100007F:3A34 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 41327 …
#include "gpu_server/supervisor/connections_here.hpp"

#include <fstream>
#include <sstream>
#include <string>

namespace tnr::server {

// False: there is no such file.
static bool add_open_ones(const char* path, ConnectionsHere& found) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line)) return false;  // the columns' names
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string number, here, there, state, queues, timer, retransmits, user, timeouts;
        ino_t socket = 0;
        if (!(words >> number >> here >> there >> state >> queues >> timer >> retransmits >> user >> timeouts >>
              socket))
            continue;
        if (state != "01") continue;
        found.ports.insert(std::stoi(here.substr(here.rfind(':') + 1), nullptr, 16));
        found.sockets.insert(socket);
    }
    return true;
}

std::optional<ConnectionsHere> connections_here() {
    ConnectionsHere found;
    if (!add_open_ones("/proc/self/net/tcp", found)) return std::nullopt;
    add_open_ones("/proc/self/net/tcp6", found);  // where there is IPv6
    return found;
}

}  // namespace tnr::server
