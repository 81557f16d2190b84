// What tnr does on a machine once it runs: get in, put our software there, prove that it works.
// The real one goes over SSH (ssh_access.cpp); tests of `tnr start` use one in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/provider.hpp"
#include "cli/records.hpp"
#include "gpu_client/protocol/gpu_config.hpp"

namespace tnr::cli {

using Say = std::function<void(const std::string&)>;  // a few words beside the running step
// Hears, in a few words, why one more try was in vain; its error ends the trying.
using Waiting = std::function<Result<>(const std::string&)>;

// A GPU as a program on the machine sees it.
struct SeenGpu {
    std::string name;
    uint64_t memory_bytes = 0;
};

struct Proof {
    std::vector<SeenGpu> gpus;
    std::string note = {};  // what else there is to say: that none is free at the moment
};

class MachineAccess {
public:
    virtual ~MachineAccess() = default;
    // Keeps trying while the machine boots. The access stays with this machine from then on.
    virtual Result<> get_in(const Machine& machine, const Record& record, const Waiting& waiting) = 0;
    // The same where nobody could plant a host key, so the record has none: trusts the one that the machine shows. The
    // answer is that key, a public line, to which the caller holds the machine from then on.
    virtual Result<std::string> meet(const Machine& machine, const Record& record, const Waiting& waiting);
    // Brings what differs; the answer names what was brought, and is empty when all was there.
    virtual Result<std::vector<std::string>> install(const GpuConfig& config, const Say& say) = 0;
    // Of what install() brings, the configuration alone: /etc/tnr/gpu.json. Empty: none, and so no GPU.
    virtual Result<> configure(const std::string& config_text) = 0;
    // Asks the machine for its GPUs the way any program there would. When it cannot reach the pool, the Error says so.
    virtual Result<Proof> prove() = 0;
    // Asks for the cloud's own GPUs, which need nothing of ours.
    virtual Result<Proof> prove_own();
    // Makes the machine obey these timers (timers.hpp) from now on.
    virtual Result<> install_timers(const std::string& config, const Say& say);
    // The same, in one try of a few seconds and by itself: no get_in() before.
    virtual Result<> change_timers(const Machine& machine, const Record& record, const std::string& config);
    // For how many seconds nobody has used the machine, as its timers count; nothing where it does not count. One try,
    // of a few seconds, by itself: no get_in() before.
    virtual Result<std::optional<int64_t>> idle_for(const Machine& machine, const Record& record);
    // Runs it there as the login user, in its home folder; `line` hears each line that it prints. Its exit code.
    virtual Result<int> run_script(const std::string& script, const Say& line);
};

// `folder` is the user's configuration, in which the keys are (target.hpp).
std::unique_ptr<MachineAccess> ssh_access(const std::string& folder);

}  // namespace tnr::cli
