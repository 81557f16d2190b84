// See connections_here.hpp. The lines are described in proc(5): "   0: 0100007F:3A34 0100007F:9C40 01 …".
#include "gpu_server/supervisor/connections_here.hpp"

#include <fstream>
#include <sstream>
#include <string>

namespace tnr::server {

// False: there is no such file.
static bool add_connected(const char* path, std::set<int>& ports) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line)) return false;  // the columns' names
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string number, here, there, state;
        if (words >> number >> here >> there >> state && state == "01")
            ports.insert(std::stoi(here.substr(here.rfind(':') + 1), nullptr, 16));
    }
    return true;
}

std::optional<std::set<int>> connected_ports() {
    std::set<int> ports;
    if (!add_connected("/proc/self/net/tcp", ports)) return std::nullopt;
    add_connected("/proc/self/net/tcp6", ports);  // where there is IPv6
    return ports;
}

}  // namespace tnr::server
