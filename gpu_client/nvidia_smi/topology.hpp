// nvidia-smi topo: how the GPUs of this machine are connected.
#pragma once

#include <string>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

// topo -m: the matrix of connections, and the processors near each GPU.
std::string topology_matrix(const System& system);

// topo -p2p WHAT: what works between each two. An Error of kind usage says that WHAT is none of r, w, n, a, p.
Result<std::string> peer_matrix(const System& system, const std::string& what);

}  // namespace tnr::smi
