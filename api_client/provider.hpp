// One cloud that rents out CPU-only machines. A driver translates between our words (Offer, Machine, Price) and one
// vendor's REST API. It keeps no state between calls and never prints; repeating
// is the HTTP layer's business.
//
// cloud.hpp says how drivers are found and how one is added.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr {

// What something costs for an hour, as its cloud bills it. Nothing: unknown, which is not zero. Currencies are never
// converted.
struct Price {
    std::string currency = {};           // "EUR"; empty where nothing is ever billed
    std::optional<double> machine = {};  // while it runs
    std::optional<double> disk = {};     // as long as it exists; 0 where the machine's price has it
    std::optional<double> address = {};  // likewise
    bool billed_while_stopped = false;   // the machine, too
    std::optional<double> month = {};    // all together, where the cloud bills a month by another rate than hours
    std::string source = {};             // "Hetzner's /pricing, without VAT"
    std::string date = {};               // when the cloud said so: UTC, ISO 8601

    // Machine, disk and address; nothing when one of them is unknown.
    std::optional<double> running() const;
    std::optional<double> stopped() const;
    // The cloud's own figure, else 730 hours.
    std::optional<double> monthly() const;
};
Price free_of_charge();

// The cloud's own states, in our words. `gone`: it was there and no longer is.
enum class MachineState { starting, running, stopping, stopped, gone };

// A size of machine that can be ordered at one place. x86 only: that is where our libraries are.
struct Offer {
    std::string name = {};    // the vendor's own word, "cx22"
    std::string region = {};  // the vendor's own word, "fsn1"; empty where there are none
    int cpus = 0;
    int memory_mib = 0;
    int disk_gib = 0;
    std::string gpu = {};  // the cloud's own GPU in it; empty: none
    int gpu_count = 0;
    bool available = true;  // as far as the cloud tells in advance
    Price price = {};
};

struct Machine {
    std::string id = {};    // the vendor's id; for `local` its name
    std::string name = {};  // the user's word
    MachineState state = MachineState::starting;
    std::string address = {};  // where SSH listens; empty until known
    int ssh_port = 22;
    std::string user = {};  // the login user, where the cloud says so; empty: the one of the order
    std::string region = {}, offer = {};
    Price price = {};
};

// What to create. `user_data` is a whole cloud-init document: user, SSH host key, authorised key.
struct Order {
    std::string name = {};
    std::string offer = {};   // Offer::name; empty: the driver's default
    std::string region = {};  // Offer::region; empty: wherever it is cheapest
    std::string gpu = {};     // Offer::gpu, where the cloud's own GPU is wanted; empty: not asked for
    int gpu_count = 0;        // likewise
    std::string image = {};   // a snapshot's id, or what the vendor calls images; empty: the driver's default
    std::string user_data = {};
    std::string user = {};            // the login user that user data makes
    std::string authorised_key = {};  // a public line, for clouds that want to know it
    // Told in a few words about each long step ("building the image: unpacking"), for the user to see;
    // may be empty. Called on the caller's thread.
    std::function<void(const std::string& step)> on_step = {};
};

// A copy of a machine's disk, from which others are made (Order::image).
struct Snapshot {
    std::string id = {}, name = {};
    double size_gib = 0;  // 0: not known yet
    std::string created = {};
    bool ready = false;
    std::string currency = {};
    std::optional<double> per_month = {};  // unknown where empty
};

// What the cloud itself says has been spent.
struct Costs {
    std::string currency = {};
    std::optional<double> this_month = {};
    std::optional<double> balance = {};  // what is owed in all; below zero: credit
    std::string source = {}, date = {};
};

class Provider {
public:
    virtual ~Provider() = default;
    virtual std::string name() const = 0;
    // Who we are there, found out by a call that changes nothing; wrong credentials are an Error of kind auth.
    virtual Result<std::string> whoami() = 0;
    // How its machines reach this computer's loopback ("10.0.2.2" under QEMU's user network); empty: not at all.
    virtual std::string pool_host() const { return ""; }

    // Its machines have GPUs of the cloud's own, which nothing of ours replaces, and no user data: the login user is
    // Machine::user, and nobody can plant a host key.
    virtual bool brings_gpus() const { return false; }

    // The default first.
    virtual Result<std::vector<Offer>> offers() = 0;

    // Whether the order makes sense, as far as that can be told without making anything: an Error of kind usage names
    // the size, region, image or name that there is not. That a size is sold out now is create()'s to say.
    virtual Result<> check(const Order& order);
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
    // And all that create() made for it: keys, firewall.
    virtual Result<> destroy(const std::string& id) = 0;

    // What not every cloud has: an Error of kind usage there.
    // Of a stopped machine, to another size at the same place.
    virtual Result<> resize(const std::string& id, const std::string& offer);
    // Returns once the cloud has accepted; snapshots() shows when it is ready.
    virtual Result<> snapshot(const std::string& id, const std::string& name);
    virtual Result<std::vector<Snapshot>> snapshots();
    // Succeeds when there is none.
    virtual Result<> delete_snapshot(const std::string& id);
    // SSH and these TCP ports can be reached from outside, nothing else.
    virtual Result<> open_ports(const std::string& id, const std::vector<int>& ports);
    virtual Result<Costs> costs();

private:
    Error lacks(const std::string& what) const;
};

}  // namespace tnr
