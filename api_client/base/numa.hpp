// The NUMA nodes of this machine.
#pragma once

#include <unistd.h>

#include <string>

namespace tnr {

// Every machine has node 0, whether its kernel tells nodes apart or not.
inline bool is_numa_node(int node) {
    const std::string folder = "/sys/devices/system/node/node" + std::to_string(node);
    return node == 0 || (node > 0 && ::access(folder.c_str(), F_OK) == 0);
}

}  // namespace tnr
