// Machines whose GPUs are their cloud's own (Provider::brings_gpus): the cloud, not a pool, says which there are, and
// nothing of ours is put in front of them.
#pragma once

#include <string>

#include "api_client/provider.hpp"
#include "cli/pool.hpp"
#include "cli/records.hpp"

namespace tnr::cli {

// Which of the cloud's GPUs `text` means, "h100" or "h100:2"; empty: the one of the size, where that is told. `command`
// is what hints tell the user to type.
Result<GpuWish> choose_own_gpu(Provider& provider, const std::string& text, const std::string& size,
                               const std::string& command);
// What a word stands for where a machine's name is meant: the original tnr of Thunder's has numbers, and no name of ours
// begins with a digit.
std::string machine_meant(const std::string& word);
// The number in such a name; empty where it has none.
std::string number_in(const std::string& name);

// The record has the GPU that its cloud says the machine has; nothing changes where the cloud brings none.
void take_own_gpu(Record& record, const Machine& machine);

}  // namespace tnr::cli
