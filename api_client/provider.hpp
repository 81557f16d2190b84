// One cloud that rents out CPU-only machines. A driver translates between our words (Offer, Machine, Price) and one
// vendor's REST API. It keeps no state between calls and never prints; repeating is the HTTP layer's business.
//
// cloud.hpp says how drivers are found and how one is added.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "api_client/vocabulary.hpp"

namespace tnr {

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
    // Whether resize() takes a machine that runs.
    virtual bool resizes_running() const { return false; }
    // Whether a machine that switches itself off costs no more than one that stop() has stopped. Where it does, the next
    // `tnr` calls stop() for it. What a stopped machine costs is Price's to say.
    virtual bool power_off_ends_billing() const { return true; }

    // The default first. Of a cloud with many regions, those of the user's own one.
    virtual Result<std::vector<Offer>> offers() = 0;
    // Those among which an order for that region chooses; "": offers().
    virtual Result<std::vector<Offer>> offers_in(const std::string& region);

    // Whether the order makes sense, as far as that can be told without making anything: an Error of kind usage names
    // the size, region, image or name that there is not. That a size is sold out now is create()'s to say.
    virtual Result<> check(const Order& order);
    // Returns once the cloud has accepted the order; ask machine() until it is running.
    // An order whose name is taken by a machine of ours is an Error of kind usage.
    virtual Result<Machine> create(const Order& order) = 0;
    // A machine that does not exist is an Error of kind not_found.
    virtual Result<Machine> machine(const std::string& id) = 0;
    // Every machine that carries our tag; at Thunder, whose own `tnr` this one replaces, that one's as well
    // (Machine::foreign, called by its number).
    virtual Result<std::vector<Machine>> machines() = 0;
    // stop keeps the disk. Stopping a stopped machine, starting a running one, destroying one that is
    // already gone: all succeed, so callers may repeat them after a timeout.
    virtual Result<> stop(const std::string& id) = 0;
    virtual Result<> start(const std::string& id) = 0;
    // And all that create() made for it: keys, firewall.
    virtual Result<> destroy(const std::string& id) = 0;

    // Where there is no machine of this name: what a create() or destroy() that was cut off has left of its keys and firewall.
    virtual Result<std::vector<Leftover>> leftovers(const std::string& name);
    // What is not there counts as removed.
    virtual Result<> remove_leftover(const Leftover& leftover);
    Result<> remove_leftovers(const std::string& name);

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
    // Lets this key, a public line, into a machine that was made without it.
    virtual Result<> let_in(const Machine& machine, const std::string& public_line);

protected:
    // What create() says of an order whose name is taken; `why` follows the words where the driver knows more.
    Error name_taken(const std::string& machine, const std::string& why = "") const;
    Result<> remove_all(const Result<std::vector<Leftover>>& leftovers);
    static bool has(const std::vector<Machine>& machines, const std::string& name);  // one that is not gone
    // name_taken() where one of machines() has the name. For drivers that have no shorter way to ask.
    Result<> name_is_free(const std::string& machine);

private:
    Error lacks(const std::string& what) const;
};

}  // namespace tnr
