// What the processes of a claim give each other: memory of the GPU and events. A worker has no way to another one, so it
// hands over a descriptor, under a random name that its client passes on as it likes; whoever of the same claim says the
// name gets the descriptor. Names of other claims are not found.
//
// Messages, each inside {"exchange": …} and answered by {"exchanged": {ticket, ok, …}}:
//   {"lend": name, "kind": "memory", "device", "bytes"}, with a descriptor; "multicast" objects likewise, of 0 bytes:
//                                                       they are no memory of any device, though one is named
//   {"lend": name, "kind": "event"}, with a sealed memory file of event_page_bytes
//   {"borrow": name, "kind"}                            answered with a descriptor, and but for events with device and bytes
//   {"withdraw": name}                                  nobody gets it any more; answered when nobody has it any more
// and {"return": {name}}, which is not answered: the worker is done with what it has borrowed, once.
//
// Memory whose owner has ended while others still have it stays counted as granted until they are done with it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gpu_server/supervisor/gpus.hpp"

namespace tnr::server {

class Exchange {
public:
    // `claim_of`: the id of the claim that a worker serves; 0 if it serves none. Of our descriptors only those below
    // `descriptors` are used: the rest is for what runs.
    using ClaimOf = std::function<int64_t(const Worker&)>;
    Exchange(Workers& workers, Gpus& gpus, ClaimOf claim_of, int descriptors);

    size_t things() const { return things_.size(); }
    // Our descriptors of what workers have lent, by the process that has to answer for it: its owner, or, when that has ended,
    // one that has borrowed it.
    std::map<pid_t, std::vector<int>> files() const;

    void hand_over(Handover& handover);
    Result<> take_over(Handover& handover, const FindWorker& find_worker);

private:
    struct Thing {
        ThingKind kind = ThingKind::memory;
        int gpu = -1;  // unless it is an event: the node's index
        uint64_t bytes = 0;
        UniqueFd file;
        Worker* owner = nullptr;  // null: it has ended
        std::map<Worker*, int> borrowers;
        bool withdrawn = false;
        uint64_t withdrawal = 0;  // the ticket to be answered
        bool charged = false;     // to the GPU's ledger, by us
        bool is_event() const { return kind == ThingKind::event; }
    };
    using Key = std::pair<int64_t, std::string>;  // claim, name
    using At = std::map<Key, Thing>::iterator;
    Result<> take_over_one(Handover& handover, const nlohmann::json& told, const FindWorker& find_worker);

    // False: it makes no sense.
    bool lend(Worker& worker, const Lend& thing, UniqueFd file);
    bool borrow(Worker& worker, const Borrow& thing);
    bool withdraw(Worker& worker, const Withdraw& thing);
    bool take_back(Worker& worker, const std::string& name);
    void gone(Worker& worker);
    void settle(At thing);
    void answer(Worker& worker, uint64_t ticket, bool ok);

    Workers& workers_;
    Gpus& gpus_;
    ClaimOf claim_of_;
    const int descriptors_;
    std::map<Key, Thing> things_;
    std::map<int64_t, size_t> of_claim_;  // how many of them
};

}  // namespace tnr::server
