// This node as one of a pool's: registers it, tells the others what is free here, knows what is free there, and says
// whether anything new may begin. The rules are in pool/directory.hpp.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/fences.hpp"
#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/gpus.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/history.hpp"
#include "gpu_server/supervisor/looks.hpp"
#include "gpu_server/supervisor/mailbox.hpp"
#include "gpu_server/supervisor/pool_link.hpp"
#include "gpu_server/supervisor/sent_clients.hpp"

namespace tnr::server {

class Membership : public PoolLink {
public:
    struct Events {
        // The lease lasts longer now, or the node has other GPUs than before.
        std::function<void()> renewed;
        // These GPUs are another node's.
        std::function<void(const std::set<std::string>& uuids)> lost;
        // There are other nodes now, or they have other keys.
        std::function<void()> heard;
    };

    Membership(EventLoop& loop, Gpus& gpus, std::function<std::unique_ptr<Directory>(Post)> open);
    ~Membership() override;

    void on(Events events) { events_ = std::move(events); }
    // Registers; its GPUs begin to be served when that has succeeded.
    void join(PoolNode self, const std::string& history);
    Error why_not_joined() const;
    // Stops without leaving: the others notice nothing, for as long as the lease lasts.
    void hand_over(Handover& handover);
    // In place of join(). Its GPUs are in the states in which they were handed over.
    Result<> take_over(PoolNode self, const std::string& history, const Handover& handover);
    // Whether we have heard of the other nodes, and whether we are drained.
    bool knows_itself() const { return directory_->nodes().count(self_.name) > 0; }
    // In good order, after everything has ended.
    void leave();

    // The others send clients here with it.
    void tell_key(const std::string& public_key) { directory_->tell_key(public_key); }

    const std::string& name() const { return self_.name; }
    const Directory& directory() const { return *directory_; }
    std::vector<PoolNode> others() const;
    // As of the last look that asked for it; without this node's own, which the supervisor itself knows better.
    TypeCounts types_elsewhere() const;
    // Nodes that were there since this server's start and are not now: what they have served is in ledgers of their own.
    std::vector<std::string> gone() const;
    // Of this account, or of all.
    std::vector<PoolClaim> claims_elsewhere(const std::optional<std::string>& account) const;
    // A node with a claim of this machine, as {"redirect": …}.
    std::optional<nlohmann::json> node_with_claim_of(const Caller& caller);

    Result<> may_begin() const override;
    bool draining() const override;
    int64_t lease_until_ms() const override { return directory_->standing().until_ms; }
    bool nothing_elsewhere(const std::string& account) const override;
    void began(PoolClaim claim, Directory::Unless unless, std::function<void(Result<int64_t>)> done) override;
    void ended(int64_t id, const std::vector<int>& gpus) override;
    Result<UniqueFd> fence(const std::string& uuid, int64_t number) override;
    void changed() override;
    void look(const Question& question, std::function<void()> then) override;
    std::map<std::string, Elsewhere> offered_elsewhere() const override;
    int held_elsewhere(const std::string& account, int64_t before) const override;
    std::optional<nlohmann::json> elsewhere(const Caller& caller, const GpuWish& wish, Need need) override;

private:
    void look();
    void introduce(PoolNode self, const std::string& history);
    Result<> fence_again(const nlohmann::json& fenced);
    void fence_what_is_ours(const std::set<std::string>& refused);
    bool overtaken(const std::string& uuid) const;
    void note_what_we_see();
    TypeCounts types_here(const std::vector<int>& coming_free = {}) const;
    // Of this machine, at another node; with `gpu`, of that type.
    const PoolClaim* claim_elsewhere(const Caller& caller, const std::string* gpu) const;
    std::optional<nlohmann::json> redirect_to(const std::string& node) const;

    EventLoop& loop_;
    Gpus& gpus_;
    Mailbox mailbox_;
    std::unique_ptr<Directory> directory_;
    Looks looks_;
    Events events_;
    PoolNode self_;
    int64_t registration_ = 0;       // as of the last look
    int64_t lease_told_ = 0;         // until when
    std::set<std::string> refused_;  // likewise: GPUs of other nodes
    std::set<std::string> seen_;     // names of nodes, since the start
    std::optional<Fences> fences_;   // once we know our pool
    std::string fences_pool_;        // which that was
    struct Fenced {
        int64_t number;  // the highest that we gave
        Fence fence;
    };
    std::map<std::string, Fenced> fenced_;  // by GPU
    EventLoop::TimerId telling_ = 0;
    std::optional<History> history_;
    bool blind_ = false;  // it has taken over, and not heard yet who is there: nobody has gone for that
    SentClients sent_;
};

}  // namespace tnr::server
