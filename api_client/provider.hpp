// One cloud that rents out CPU-only machines. A driver translates between our words (Offer, Machine)
// and one vendor's REST API. It keeps no state between calls, never retries and never prints.
//
// To add a cloud: write providers/<name>.cpp, name it in providers.cpp, and record a few of its
// replies under tests/api_client/replies/<name>/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr {

// The cloud's own states, in our words. `gone`: it was there and no longer is.
enum class MachineState { starting, running, stopping, stopped, gone };

// A size of machine that can be ordered.
struct Offer {
    std::string name = {};  // the vendor's own word, "cx22"
    int cpus = 0;
    int memory_mib = 0;
    int disk_gib = 0;
    double usd_per_hour = 0;  // 0: costs nothing (local)
};

struct Machine {
    std::string id = {};    // the vendor's id; for `local` its name
    std::string name = {};  // the user's word
    MachineState state = MachineState::starting;
    std::string address = {};  // where SSH listens; empty until known
    int ssh_port = 22;
    std::string user = {};       // the login user that user data makes
    std::string pool_host = {};  // how this machine reaches the operator's loopback ("10.0.2.2" under QEMU's
                                 // user network), empty where it cannot
    double usd_per_hour = 0;
};

// What to create. `user_data` is a whole cloud-init document: user, SSH host key, authorised key.
struct Order {
    std::string name = {};
    std::string offer = {};  // Offer::name; empty: the driver's default
    std::string image = {};  // empty: the driver's default
    std::string user_data = {};
    // Told in a few words about each long step ("building the image: unpacking"), for the user to see;
    // may be empty. Called on the caller's thread.
    std::function<void(const std::string& step)> on_step = {};
};

class Provider {
public:
    virtual ~Provider() = default;
    virtual std::string name() const = 0;
    virtual Result<std::vector<Offer>> offers() = 0;

    // Whether the order could be met, as far as that can be told without making anything: an Error of kind usage names
    // the size, image or name that there is not.
    virtual Result<> check(const Order&) { return Ok{}; }
    // Returns once the cloud has accepted the order; ask machine() until it is running.
    // An order whose name is taken by a machine of ours is an Error of kind usage.
    virtual Result<Machine> create(const Order& order) = 0;
    // A machine that does not exist is an Error of kind not_found.
    virtual Result<Machine> machine(const std::string& id) = 0;
    // Every machine that carries our tag.
    virtual Result<std::vector<Machine>> machines() = 0;
    // stop keeps the disk. Stopping a stopped machine, starting a running one, destroying one that is
    // already gone: all succeed, so callers may repeat them after a timeout.
    virtual Result<> stop(const std::string& id) = 0;
    virtual Result<> start(const std::string& id) = 0;
    virtual Result<> destroy(const std::string& id) = 0;
};

// The drivers by name, in the order `--help` shows them.
std::vector<std::string> provider_names();
Result<std::unique_ptr<Provider>> make_provider(const std::string& name);

}  // namespace tnr
