// Nodes and claims in etcd. See directory.hpp for the rules, and etcd_keys.hpp for the keys.
#include <atomic>
#include <sstream>

#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/directory_backend.hpp"
#include "gpu_server/pool/etcd.hpp"
#include "gpu_server/pool/etcd_follower.hpp"
#include "gpu_server/pool/etcd_keys.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server {
namespace {

// A lease is worth three seconds: what takes longer than this may as well be asked again.
constexpr http::Limits quick{.connect_ms = 800, .total_ms = 1'200};
// A claim is worth more of it, where etcd's disk is slow: as long as etcd itself takes for a request.
constexpr int write_ms_max = 7'000;
// Somebody's request waits for the answer, and can do without.
constexpr http::Limits impatient{.connect_ms = 400, .total_ms = 800};

// As many nodes as are told of at once where some will do: from a place in the list of them that is another each time, round
// its end.
constexpr size_t some_nodes = 32;
// If these have no GPUs to spare, all are asked, but no more often than this.
constexpr int64_t all_asked_every_ms = 1'000;

// As nodes call them: the name under which the store has them, with `kind` in place of `under`.
Entry entry_of(const etcd::KeyValue& pair, const std::string& under, const std::string& kind, bool removed = false) {
    return {kind + pair.key.substr(under.size()), removed ? std::nullopt : std::optional(pair.value),
            removed ? pair.mod_revision : pair.create_revision};
}
void add_entries(std::vector<Entry>& entries, const etcd::Listing& listing, const std::string& under,
                 const std::string& kind) {
    for (auto& pair : listing.values) entries.push_back(entry_of(pair, under, kind));
}

class EtcdBackend : public Backend {
public:
    EtcdBackend(const etcd::Address& address, LeaseTimes times)
        : address_(address),
          keys_{address.prefix},
          times_(times),
          keeper_(address, quick),
          writer_(address, quick, {[this] { return given_up_.rung(); }, given_up_.fd()}, write_ms_max),
          looker_(address, impatient),
          follower_(address, keys_.view(), keys_.history(),
                    {.history_ms = times.history_ms, .gathered_ms = times.gathered_ms}) {}

    Result<Registration> join(const PoolNode& self, const std::vector<PoolClaim>& claims) override {
        auto found = registered(self);
        if (!found) return found.error();
        if (auto mine = end_earlier(self, *found); !mine) return mine.error();
        // Ours, where somebody has removed the node from under it: what is left of it there is in the way.
        if (auto lease = lease_.exchange(0); lease != 0)
            if (auto ended = keeper_.revoke(lease); !ended) return ended.error();
        auto pool = identity_of(*found);
        if (!pool) return pool.error();
        auto lease = keeper_.grant_lease(times_.ttl_s);
        if (!lease) return lease.error();

        Registration registration;
        etcd::Txn txn;
        txn.if_absent(keys_.node(self.name)).put(keys_.node(self.name), to_text(self), *lease);
        if (found->member)
            txn.if_is(keys_.member(self.name), found->member->value);
        else
            txn.if_absent(keys_.member(self.name));
        txn.put(keys_.member(self.name), self.identity);
        for (size_t i = 0; i < self.gpus.size(); ++i) {
            auto& uuid = self.gpus[i];
            auto& owner = found->owners[i];
            if (owner && owner->value != self.name) {
                registration.refused.push_back(uuid);
                continue;
            }
            txn.if_changed_at(keys_.gpu(uuid), owner ? owner->mod_revision : 0);
            txn.put(keys_.gpu(uuid), self.name);
        }
        put_free(txn, self, *lease);
        for (auto& claim : claims) {
            put_claim(txn, claim, *lease);
            for (auto& uuid : claim.devices) txn.put(keys_.held(uuid), claim_name(claim.node, claim.id), *lease);
        }
        auto made = keeper_.commit(txn);
        if (!made) return made.error();
        if (!made->done) return Error{Error::Kind::remote, "another node registered at the same moment"};
        lease_ = *lease;
        kept_at_ = boot_ms();
        highest_ = registration.fence = made->revision;
        registration.pool = pool_ = *pool;
        note_own(self, registration.refused);
        return registration;
    }

    void go_on(const PoolNode& self, const std::string& lease, const Registration& registration) override {
        std::istringstream words(lease);
        int64_t number = 0, highest = 0;
        words >> number >> highest;
        lease_ = number;
        kept_at_ = boot_ms();
        highest_ = highest;
        pool_ = registration.pool;
        note_own(self, registration.refused);
    }
    std::string lease() const override { return std::to_string(lease_) + " " + std::to_string(highest_); }

    Result<bool> renew() override {
        const auto known = highest_.load();
        const auto asked = boot_ms();
        auto kept = keeper_.keep_alive(lease_);
        if (!kept) {
            if (asked > kept_at_ + times_.ttl_s * 1000)
                if (auto over = keeper_.is_over(lease_); over && *over) return false;
            return kept.error();
        }
        kept_at_ = asked;
        if (!kept->there || kept->revision >= known) return kept->there ? has_its_gpus() : false;
        // That member lags behind; or etcd was restored from a snapshot, and knows nothing of what came later.
        auto now = keeper_.list(std::vector{etcd::just(keys_.identity())});
        if (!now) return now.error();
        return now->front().revision >= known;
    }

    Result<Adopted> adopt(const PoolNode& self, int64_t fence, const std::vector<std::string>& refused) override {
        Adopted adopted;
        for (auto& uuid : refused) {
            etcd::Txn txn;
            txn.if_created_at(keys_.node(self.name), fence).if_absent(keys_.gpu(uuid)).put(keys_.gpu(uuid), self.name);
            auto taken = keeper_.commit(txn);
            if (!taken) return taken.error();
            if (taken->done)
                adopted.fence = taken->revision, own_gpus_.push_back(etcd::just(keys_.gpu(uuid)));
            else
                adopted.refused.push_back(uuid);
        }
        return adopted;
    }

    Result<bool> tell_free(const PoolNode& self, int64_t fence) override {
        etcd::Txn txn;
        put_free(txn, self, lease_);
        return tell(self, fence, txn);
    }

    Result<bool> tell_node(const PoolNode& self, int64_t fence) override {
        etcd::Txn txn;
        txn.put(keys_.node(self.name), to_text(self), lease_);
        return tell(self, fence, txn);
    }

    Result<Added> add(const PoolClaim& claim, int64_t fence, const PoolNode* telling,
                      std::optional<int64_t> none_since) override {
        etcd::Txn txn;
        txn.if_created_at(keys_.node(claim.node), fence);
        if (none_since) txn.if_none_newer(keys_.account(claim.account), *none_since);
        put_claim(txn, claim, lease_);
        if (telling) put_free(txn, *telling, lease_);
        for (auto& uuid : claim.devices)
            txn.if_is(keys_.gpu(uuid), claim.node)
                .if_absent(keys_.held(uuid))
                .put(keys_.held(uuid), claim_name(claim.node, claim.id), lease_);
        txn.read(etcd::all_under(keys_.account(claim.account)));
        auto answered = writer_.commit(txn);
        if (!answered) return answered.error();
        auto& of_account = answered->found.front();
        Added added{0, {{}, answered->revision}};
        add_entries(added.claims.entries, of_account, keys_.account(claim.account), "claims/");
        if (answered->done) {
            added.fence = highest_ = answered->revision;
            return added;
        }
        bool newer = false;
        for (auto& pair : of_account.values) {
            newer |= none_since && pair.create_revision > *none_since;
            // Was it us, a moment ago, and the answer was lost?
            if (pair.key != keys_.of_account(claim) || pair.value != to_text(claim)) continue;
            if (telling)  // what was told with it may be older
                if (auto told = tell_free(*telling, fence); !told) return told.error();
            added.fence = pair.create_revision;
            return added;
        }
        if (newer) return added;
        auto node = writer_.list(std::vector{etcd::just(keys_.node(claim.node))});
        if (!node) return node.error();
        auto& there = node->front().values;
        added.gone = there.empty() || there.front().create_revision != fence;
        if (added.gone) return added;
        refused_ = true;
        return Error{Error::Kind::remote,
                     "the pool does not let this node have the GPU now: it was taken for dead, or "
                     "another claim is on the GPU",
                     "try again in some seconds"};
    }

    // At one moment, whatever is there of it: its writing, if nobody waits for that any more, may be done at any time, and
    // without its entry nobody would find what it holds.
    Result<bool> remove(const PoolClaim& claim, int64_t fence, const PoolNode* telling) override {
        etcd::Txn txn, told;
        txn.remove(keys_.claim(claim)).remove(keys_.of_account(claim));
        if (telling) {
            put_free(told.if_created_at(keys_.node(claim.node), fence), *telling, lease_);
            txn.also(std::move(told));
        }
        for (auto& uuid : claim.devices)
            txn.also(etcd::Txn().if_is(keys_.held(uuid), claim_name(claim.node, claim.id)).remove(keys_.held(uuid)));
        auto removed = writer_.commit(txn);
        if (!removed) return removed.error();
        return telling && removed->done && removed->parts.front();
    }

    // One request for all of it.
    Result<Found> look(const Question& question, const std::string& from) override {
        std::vector<etcd::Span> spans;
        if (question.all_claims)
            spans.push_back(etcd::all_under(keys_.claims()));
        else
            for (auto& account : question.accounts) spans.push_back(etcd::all_under(keys_.account(account)));
        if (question.all_free)
            spans.push_back(etcd::all_under(keys_.free()));
        else
            for (auto& [type, count] : question.free)
                for (auto& part : etcd::all_around(keys_.free(type), keys_.free(type) + from, int{some_nodes}))
                    spans.push_back(part);
        auto listed = looker_.list(spans);
        if (!listed) return listed.error();
        Found all_found;
        if (!listed->empty()) all_found.as_of = listed->front().revision;
        auto& found = all_found.entries;
        auto part = listed->begin();
        if (question.all_claims) {
            add_entries(found, *part++, keys_.claims(), "claims/");
        } else {
            for (auto& account : question.accounts) add_entries(found, *part++, keys_.account(account), "claims/");
        }
        if (question.all_free) {
            add_entries(found, *part, keys_.free(), "free/");
            return all_found;
        }
        for (auto& [type, count] : question.free) {
            auto some = std::move(*part++), rest = std::move(*part++);
            const auto room = some_nodes - std::min(some.values.size(), some_nodes);
            rest.values.resize(std::min(rest.values.size(), room));
            some.values.insert(some.values.end(), rest.values.begin(), rest.values.end());
            if (auto all = all_with(type, count, some); !all) return all.error();
            add_entries(found, some, keys_.free(), "free/");
        }
        return all_found;
    }

    Result<std::vector<Entry>> claims_of(const std::string& node) override {
        auto listing = looker_.list(keys_.claims_of(node));
        if (!listing) return listing.error();
        std::vector<Entry> found;
        add_entries(found, *listing, keys_.claims(), "claims/");
        return found;
    }

    Result<> follow(const std::function<bool(const Change&)>& told, const StopAsked& stopped) override {
        const auto view = keys_.view();
        return follower_.follow(
            [&](int64_t all_as_of, const std::vector<etcd::Event>& events) {
                Change change{all_as_of > 0, {}, all_as_of};
                for (auto& event : events) change.entries.push_back(entry_of(event.pair, view, "", event.removed));
                return told(change);
            },
            stopped);
    }

    void give_up_writing() override { given_up_.ring(); }

    // What is done of this when nobody waits any more takes nothing from the node's next process: that registers, and so
    // writes its GPUs anew.
    void leave(const PoolNode& self) override {
        std::vector<etcd::Span> spans;
        for (auto& uuid : self.gpus) spans.push_back(etcd::just(keys_.gpu(uuid)));
        if (auto owners = keeper_.list(spans)) {
            etcd::Txn txn;
            for (auto& owner : *owners)
                for (auto& pair : owner.values)
                    if (pair.value == self.name) txn.if_changed_at(pair.key, pair.mod_revision).remove(pair.key);
            if (!txn.operations.empty()) (void)keeper_.commit(txn);
        }
        (void)keeper_.revoke(lease_);
    }

private:
    Result<bool> tell(const PoolNode& self, int64_t fence, etcd::Txn& what) {
        auto told = writer_.commit(what.if_created_at(keys_.node(self.name), fence));
        if (!told) return told.error();
        return told->done;
    }
    void put_free(etcd::Txn& txn, const PoolNode& self, int64_t lease) const {
        for (auto& [type, count] : self.types) txn.put(keys_.free(type) + self.name, to_text(count), lease);
    }
    void put_claim(etcd::Txn& txn, const PoolClaim& claim, int64_t lease) const {
        for (auto& key : {keys_.claim(claim), keys_.of_account(claim)}) txn.put(key, to_text(claim), lease);
    }

    void note_own(const PoolNode& self, const std::vector<std::string>& refused) {
        name_ = self.name, own_gpus_.clear();
        for (auto& uuid : self.gpus)
            if (std::find(refused.begin(), refused.end(), uuid) == refused.end())
                own_gpus_.push_back(etcd::just(keys_.gpu(uuid)));
    }
    // Looked at after a refusal: on a GPU whose entry somebody has taken from under this node all claims would be refused.
    Result<bool> has_its_gpus() {
        if (!refused_.exchange(false)) return true;
        auto owners = keeper_.list(own_gpus_);
        if (!owners) return refused_ = true;  // the next time
        return std::all_of(owners->begin(), owners->end(),
                           [&](auto& owner) { return !owner.values.empty() && owner.values.front().value == name_; });
    }

    // All nodes of this type, if the ones asked have not enough free and are not all.
    Result<> all_with(const std::string& type, int count, etcd::Listing& asked) {
        auto has_free = [&](auto& pair) {
            auto told = count_from_text(pair.value);
            return told && told->free >= count;
        };
        if (asked.values.size() < some_nodes || std::any_of(asked.values.begin(), asked.values.end(), has_free) ||
            boot_ms() < all_asked_at_ + all_asked_every_ms)
            return Ok{};
        all_asked_at_ = boot_ms();
        auto all = looker_.list(keys_.free(type));
        if (!all) return all.error();
        asked = std::move(*all);
        return Ok{};
    }

    static Error name_taken(const std::string& name) {
        return {Error::Kind::usage, "the pool has another node called '" + name + "'",
                "choose another name: --node NAME; if that node is gone for good: tnr-gpu-server remove-node " + name};
    }

    // What etcd has of a node before it registers.
    struct Registered {
        std::optional<etcd::KeyValue> node, member, identity;
        std::vector<std::optional<etcd::KeyValue>> owners;  // of its GPUs, in their order
        int64_t revision = 0;
    };
    // One request: when all nodes of a large pool register at once, etcd has enough to do.
    Result<Registered> registered(const PoolNode& self) {
        std::vector<etcd::Span> spans;
        for (auto& key : {keys_.node(self.name), keys_.member(self.name), keys_.identity()})
            spans.push_back(etcd::just(key));
        for (auto& uuid : self.gpus) spans.push_back(etcd::just(keys_.gpu(uuid)));
        auto listed = keeper_.list(spans);
        if (!listed) return listed.error();
        auto next = listed->begin();
        auto value = [&]() -> std::optional<etcd::KeyValue> {
            auto& values = (next++)->values;
            if (values.empty()) return std::nullopt;
            return std::move(values.front());
        };
        Registered found;
        found.revision = listed->front().revision;
        for (auto* one : {&found.node, &found.member, &found.identity}) *one = value();
        for (size_t i = 0; i < self.gpus.size(); ++i) found.owners.push_back(value());
        return found;
    }

    // The lease of an earlier process of this node, which has ended: its state folder is ours now.
    Result<> end_earlier(const PoolNode& self, const Registered& found) {
        if (found.member && found.member->value != self.identity) return name_taken(self.name);
        if (!found.node) return Ok{};
        auto node = node_from_text(found.node->value);
        if (node && node->identity != self.identity) return name_taken(self.name);
        return keeper_.revoke(found.node->lease);
    }

    // Numbers that begin again (etcd was restored from a snapshot) are another pool's: hosts know larger ones of this (fences.hpp).
    // The first node that finds out says so to the others.
    Result<std::string> identity_of(const Registered& found) {
        if (!found.identity) return make_identity(etcd::Txn().if_absent(keys_.identity()));
        if (found.revision >= highest_ || found.identity->value != pool_) return pool_of(*found.identity);
        log(LogLevel::warning, "the pool's store was restored: fencing numbers begin again, as another pool's");
        return make_identity(etcd::Txn().if_is(keys_.identity(), pool_));
    }
    Result<std::string> make_identity(etcd::Txn first) {
        auto made = keeper_.commit(first.put(keys_.identity(), wire::random_id()));
        if (!made) return made.error();
        auto listed = keeper_.list(std::vector{etcd::just(keys_.identity())});
        if (!listed) return listed.error();
        for (auto& pair : listed->front().values) return pool_of(pair);
        return no_identity();
    }
    static Result<std::string> pool_of(const etcd::KeyValue& identity) {
        if (identity.value.find_first_not_of("0123456789abcdef") == std::string::npos) return identity.value;
        return no_identity();
    }
    static Error no_identity() { return {Error::Kind::remote, "the pool's identity in etcd makes no sense"}; }

    const etcd::Address address_;
    const EtcdKeys keys_;
    const LeaseTimes times_;
    std::atomic<int64_t> lease_{0}, highest_{0};  // the largest fence that we were given
    std::string pool_;                            // the keeper's: its identity, as we registered
    Bell given_up_;
    etcd::Client keeper_, writer_, looker_;  // each of one thread
    std::atomic<bool> refused_{false};       // a claim was, and nobody has looked why
    std::string name_;                       // the keeper's, as are the next ones: this node's
    std::vector<etcd::Span> own_gpus_;       // the entries of those that are its own
    int64_t kept_at_ = 0;                    // the keeper's: boot_ms() when the lease was renewed last
    int64_t all_asked_at_ = 0;               // the looker's
    etcd::Follower follower_;
};

class EtcdAdmin : public NodeAdmin {
public:
    explicit EtcdAdmin(const etcd::Address& address) : keys_{address.prefix}, etcd_(address, {.total_ms = 5'000}) {}

    Result<View> view() override {
        Change all{true, {}};
        for (auto& [under, kind] :
             {std::pair(keys_.view(), ""), {keys_.free(), "free/"}, {keys_.claims(), "claims/"}}) {
            auto listing = etcd_.list(under);
            if (!listing) return listing.error();
            add_entries(all.entries, *listing, under, kind);
        }
        auto members = etcd_.list(keys_.members());
        if (!members) return members.error();
        View view;
        std::map<std::string, bool> drains;
        apply(all, view.nodes, view.claims, drains);
        for (auto& pair : members->values) {
            auto name = pair.key.substr(keys_.members().size());
            auto& node = view.nodes[name];
            node.name = name;
            node.draining = drains.count(name) > 0;
        }
        return view;
    }

    Result<> drain(const std::string& node, bool on) override {
        if (auto known = is_known(node); !known) return known;
        etcd::Txn txn;
        if (on)
            txn.put(keys_.drain(node), "1");
        else
            txn.remove(keys_.drain(node));
        auto done = etcd_.commit(txn);
        if (!done) return done.error();
        return Ok{};
    }

    Result<> remove(const std::string& node) override {
        if (auto known = is_known(node); !known) return known;
        if (auto ended = end_what_is_over(node); !ended) return ended;
        auto gpus = etcd_.list(keys_.gpus());
        if (!gpus) return gpus.error();
        etcd::Txn txn;
        txn.if_absent(keys_.node(node)).remove(keys_.member(node)).remove(keys_.drain(node));
        for (auto& pair : gpus->values)
            if (pair.value == node) txn.if_changed_at(pair.key, pair.mod_revision).remove(pair.key);
        auto done = etcd_.commit(txn);
        if (!done) return done.error();
        if (done->done) return Ok{};
        return Error{Error::Kind::usage, "the node '" + node + "' is there, and serves", "stop it first"};
    }

private:
    Result<> is_known(const std::string& node) {
        auto members = etcd_.list(keys_.members());
        if (!members) return members.error();
        for (auto& pair : members->values)
            if (pair.key == keys_.member(node)) return Ok{};
        return no_such_node(node);
    }
    // Its entry, if etcd has not ended the lease under it in time: etcd::Client::is_over() says why.
    Result<> end_what_is_over(const std::string& node) {
        auto found = etcd_.list(std::vector{etcd::just(keys_.node(node))});
        if (!found) return found.error();
        for (auto& pair : found->front().values) {
            auto over = etcd_.is_over(pair.lease);
            if (!over) return over.error();
            if (*over) return etcd_.revoke(pair.lease);
        }
        return Ok{};
    }

    const EtcdKeys keys_;
    etcd::Client etcd_;
};

}  // namespace

std::unique_ptr<Backend> make_etcd_backend(const etcd::Address& address, LeaseTimes times) {
    return std::make_unique<EtcdBackend>(address, times);
}

std::unique_ptr<Directory> make_etcd_directory(const etcd::Address& address, Post post, LeaseTimes times) {
    return make_directory(make_etcd_backend(address, times), std::move(post), times);
}

std::unique_ptr<NodeAdmin> make_etcd_admin(const etcd::Address& address) {
    return std::make_unique<EtcdAdmin>(address);
}

}  // namespace tnr::server
