// The words in which tnr speaks of clouds: what can be ordered, what was ordered, what there is, and what it costs.
#pragma once

#include <functional>
#include <optional>
#include <string>

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
    std::string gpu = {};  // the cloud's own in it, as in Offer
    int gpu_count = 0;
    bool foreign = false;     // made by the cloud's own tool, and so without anything of ours in it
    bool unfinished = false;  // parts of one, left by a create() that was cut off: Order::goes_on makes it whole
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
    bool goes_on = false;             // with what an order of ours that was cut off has left under this name
    // Told in a few words about each long step ("building the image: unpacking"), for the user to see;
    // may be empty. Called on the caller's thread.
    std::function<void(const std::string& step)> on_step = {};
};

// A copy of a machine's disk, from which others are made (Order::image).
struct Snapshot {
    std::string id = {}, name = {};
    double size_gib = 0;       // 0: not known yet
    std::string created = {};  // UTC, ISO 8601; empty where it is not known
    bool ready = false;
    std::string currency = {};
    std::optional<double> per_month = {};  // unknown where empty
};

// What is left at a cloud of a machine that is no more, or has not come to be: a key, a firewall.
struct Leftover {
    std::string id = {};    // the driver's
    std::string what = {};  // "firewall tnr-demo"
};

// What the cloud itself says has been spent.
struct Costs {
    std::string currency = {};
    std::optional<double> this_month = {};
    std::optional<double> balance = {};  // what is owed in all; below zero: credit
    std::string source = {}, date = {};
};

}  // namespace tnr
