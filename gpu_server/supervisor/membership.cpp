// See membership.hpp.
#include "gpu_server/supervisor/membership.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

Membership::Membership(EventLoop& loop, Gpus& gpus, std::function<std::unique_ptr<Directory>(Post)> open)
    : loop_(loop),
      gpus_(gpus),
      mailbox_(loop),
      directory_(open([this](std::function<void()> what) { mailbox_.post(std::move(what)); })),
      looks_(loop, *directory_) {
    directory_->on_change([this] { look(); });
    gpus_.on_touch([this](const std::string& uuid) { return overtaken(uuid); });
}

Membership::~Membership() = default;

void Membership::join(PoolNode self, const std::string& history) {
    introduce(std::move(self), history);
    history_->note("begins", json::object());
    directory_->join(self_);
}

void Membership::introduce(PoolNode self, const std::string& history) {
    self_ = std::move(self);
    history_.emplace(history, self_.name);
    self_.kinds.emplace();
    for (auto& gpu : gpus_.all()) {
        self_.gpus.push_back(gpu.found.uuid);
        self_.kinds->insert(gpu.found.type);
    }
    self_.types = types_here();
}

void Membership::hand_over(Handover& handover) {
    auto tenure = directory_->hand_over();
    auto& standing = tenure.standing;
    json claims = json::array(), fenced = json::array();
    for (auto& claim : tenure.claims) claims.push_back(to_text(claim));
    for (auto& [uuid, one] : fenced_) fenced.push_back({{"uuid", uuid}, {"number", one.number}});
    handover.section("pool") = {{"lease", tenure.lease},
                                {"fence", standing.fence},
                                {"until_ms", standing.until_ms},
                                {"refused", standing.refused},
                                {"gpus_fence", standing.gpus_fence},
                                {"pool", standing.pool},
                                {"claims", claims},
                                {"fenced", fenced},
                                // Not to be taken: it keeps the files there until we have opened them again.
                                {"fences", fences_ ? handover.keep(fences_->lock_too()) : -1}};
}

Result<> Membership::take_over(PoolNode self, const std::string& history, const Handover& handover) {
    introduce(std::move(self), history);
    return reading("place in the pool", [&]() -> Result<> {
        auto& section = handover.at("pool");
        Tenure tenure{section.at("lease").get<std::string>(), {}, {}};
        auto& standing = tenure.standing;
        standing.joined = true;
        section.at("fence").get_to(standing.fence);
        section.at("until_ms").get_to(standing.until_ms);
        section.at("refused").get_to(standing.refused);
        section.at("gpus_fence").get_to(standing.gpus_fence);
        section.at("pool").get_to(standing.pool);
        for (auto& text : section.at("claims")) {
            auto claim = claim_from_text(text.get<std::string>());
            if (!claim) return claim.error();
            tenure.claims.push_back(std::move(*claim));
        }
        registration_ = standing.fence;
        refused_ = {standing.refused.begin(), standing.refused.end()};
        blind_ = true;
        directory_->join(self_, std::move(tenure));
        return fence_again(section.at("fenced"));
    });
}

// Under the numbers that they have. One that is another's by now is that at the next look.
Result<> Membership::fence_again(const json& fenced) {
    for (auto& told : fenced) {
        auto uuid = told.at("uuid").get<std::string>();
        auto file = fence(uuid, told.at("number").get<int64_t>());
        if (!file && file.error().kind != Error::Kind::remote) return file.error();
        if (!file) log(LogLevel::error, file.error().what);
        if (!file && events_.lost) events_.lost({uuid});
    }
    return Ok{};
}

void Membership::leave() {
    for (auto& gpu : gpus_.all())
        if (fences_ && !gpu.anothers && !overtaken(gpu.found.uuid)) fences_->remove(gpu.found.uuid);
    directory_->leave();
}

// Something in the directory has changed.
void Membership::look() {
    auto& standing = directory_->standing();
    blind_ = blind_ && !knows_itself();
    for (auto& [name, node] : directory_->nodes())
        if (seen_.size() < nodes_remembered_max) seen_.insert(name);
    if (!blind_ && history_ && history_->wanted()) note_what_we_see();
    std::set<std::string> refused(standing.refused.begin(), standing.refused.end());
    if (standing.joined && (standing.fence != registration_ || refused != refused_)) {
        fence_what_is_ours(refused);
        registration_ = standing.fence;
        refused_ = refused;
        if (events_.lost) events_.lost(refused);
        gpus_.serve_all_but(refused);
        changed();
    }
    if (!blind_ && events_.heard) events_.heard();
    if (events_.renewed && std::exchange(lease_told_, standing.until_ms) != standing.until_ms) events_.renewed();
}

// GPUs that have just become ours: whoever had them before, and does not know, does nothing there any more. Claims that go
// on here have smaller numbers.
void Membership::fence_what_is_ours(const std::set<std::string>& refused) {
    auto& standing = directory_->standing();
    for (auto& gpu : gpus_.all()) {
        auto& uuid = gpu.found.uuid;
        const bool was_ours = registration_ != 0 && refused_.count(uuid) == 0 && !overtaken(uuid);
        if (was_ours || refused.count(uuid) > 0) continue;
        if (auto raised = fence(uuid, standing.gpus_fence); !raised) log(LogLevel::error, raised.error().what);
    }
}

Result<UniqueFd> Membership::fence(const std::string& uuid, int64_t number) {
    auto& pool = directory_->standing().pool;
    if (!fences_ || fences_pool_ != pool) {
        auto opened = Fences::open(pool);
        if (!opened) return opened.error();
        fenced_.clear();
        fences_ = std::move(*opened);
        fences_pool_ = pool;
    }
    auto file = fences_->raise(uuid, number);
    if (!file) return file;
    auto fence = Fence::map(*file);
    if (!fence) return fence.error();
    fenced_.erase(uuid);
    fenced_.emplace(uuid, Fenced{number, std::move(*fence)});
    return file;
}

// Whether another has given it away since we did.
bool Membership::overtaken(const std::string& uuid) const {
    auto found = fenced_.find(uuid);
    return found != fenced_.end() && found->second.fence.highest() > found->second.number;
}

void Membership::note_what_we_see() {
    auto& standing = directory_->standing();
    json nodes = json::object();
    for (auto& [name, node] : directory_->nodes()) nodes[name] = node.fence;
    history_->note(
        "sees",
        {{"nodes", nodes}, {"joined", standing.joined}, {"fence", standing.fence}, {"until_ms", standing.until_ms}});
}

void Membership::look(const Question& question, std::function<void()> then) {
    auto& nodes = directory_->nodes();
    bool alone = nodes.empty() || (nodes.size() == 1 && nodes.count(self_.name));
    if (alone) return then();
    looks_.look(question, std::move(then));
}

TypeCounts Membership::types_here(const std::vector<int>& coming_free) const {
    TypeCounts types;
    for (auto& gpu : gpus_.all()) {
        if (gpu.anothers || gpu.state == Gpu::State::broken) continue;
        auto& count = types[gpu.found.type];
        ++count.total;
        count.free += gpu.state != Gpu::State::claimed || std::count(coming_free.begin(), coming_free.end(), gpu.index);
        count.memory_bytes = gpu.found.memory_bytes;
    }
    return types;
}

// Several changes at once are told as one.
void Membership::changed() {
    if (telling_ != 0) return;
    telling_ = loop_.after(capacity_told_after, [this] {
        telling_ = 0;
        directory_->tell(types_here());
    });
}

Result<> Membership::may_begin() const {
    auto& standing = directory_->standing();
    if (standing.good()) return Ok{};
    std::string why = standing.trouble.empty() ? "it does not answer" : standing.trouble;
    return Error{Error::Kind::remote,
                 "node '" + self_.name + "' begins nothing new: it is out of touch with its pool (" + why + ")",
                 "programs that run are not touched; try again in some seconds" +
                     (standing.hint.empty() ? "" : "; " + standing.hint)};
}

Error Membership::why_not_joined() const {
    auto& standing = directory_->standing();
    return {Error::Kind::remote,
            "the pool does not take in the node '" + self_.name + "'" +
                (standing.trouble.empty() ? "" : ": " + standing.trouble),
            standing.hint.empty() ? "the nodes that it has: tnr-gpu-server nodes; another name: --node NAME"
                                  : standing.hint};
}

bool Membership::draining() const {
    auto found = directory_->nodes().find(self_.name);
    return found != directory_->nodes().end() && found->second.draining;
}

bool Membership::nothing_elsewhere(const std::string& account) const {
    auto& claims = directory_->claims();
    return std::none_of(claims.begin(), claims.end(),
                        [&](auto& one) { return one.second.account == account && one.second.node != self_.name; });
}

void Membership::began(PoolClaim claim, Directory::Unless unless, std::function<void(Result<int64_t>)> done) {
    claim.node = self_.name;
    directory_->add_claim(claim, types_here(), unless, [this, claim, done = std::move(done)](Result<int64_t> fence) {
        const bool begun = fence && *fence > 0;
        if (begun && directory_->standing().good())
            history_->note("has", {{"claim", claim.id},
                                   {"gpus", claim.devices},
                                   {"fence", *fence},
                                   {"until_ms", directory_->standing().until_ms}});
        else if (begun)
            fence = may_begin().error();  // the answer came too late
        done(std::move(fence));
    });
}

void Membership::ended(int64_t id, const std::vector<int>& gpus) {
    history_->note("has not", {{"claim", id}});
    directory_->remove_claim(id, types_here(gpus));
}

int Membership::held_elsewhere(const std::string& account, int64_t before) const {
    if (account.empty()) return 0;
    int held = 0;
    for (auto& claim : claims_elsewhere(account))
        if (claim.fence < before) held += static_cast<int>(claim.devices.size());
    return held;
}

std::vector<PoolNode> Membership::others() const {
    std::vector<PoolNode> found;
    for (auto& [name, node] : directory_->nodes())
        if (name != self_.name) found.push_back(node);
    return found;
}

std::vector<std::string> Membership::gone() const {
    std::vector<std::string> names;
    for (auto& name : seen_)
        if (name != self_.name && directory_->nodes().count(name) == 0) names.push_back(name);
    return names;
}

std::vector<PoolClaim> Membership::claims_elsewhere(const std::optional<std::string>& account) const {
    std::vector<PoolClaim> found;
    for (auto& [name, claim] : directory_->claims())
        if ((!account || claim.account == *account) && claim.node != self_.name) found.push_back(claim);
    return found;
}

TypeCounts Membership::types_elsewhere() const {
    TypeCounts types;
    for (auto& [name, node] : directory_->nodes()) {
        if (name == self_.name) continue;
        for (auto& [type, count] : node.types) {
            types[type].total += count.total;
            if (!node.draining) types[type].free += count.free;
            types[type].memory_bytes = count.memory_bytes;
        }
    }
    return types;
}

std::map<std::string, Elsewhere> Membership::offered_elsewhere() const {
    std::map<std::string, Elsewhere> offered;
    for (auto& [name, node] : directory_->nodes()) {
        if (name == self_.name) continue;
        for (auto& [type, count] : node.types) {
            if (count.total == 0) continue;
            auto& all = offered[type];
            all.total += count.total;
            all.most = std::max(all.most, count.total);
            if (!node.draining) all.most_free = std::max(all.most_free, count.free);
            all.memory_bytes = count.memory_bytes;
        }
    }
    return offered;
}

std::optional<json> Membership::redirect_to(const std::string& name) const {
    auto node = directory_->nodes().find(name);
    if (node == directory_->nodes().end()) return std::nullopt;
    return json{
        {"redirect", {{"node", name}, {"address", node->second.address}, {"server_key", node->second.server_key}}}};
}

const PoolClaim* Membership::claim_elsewhere(const Caller& caller, const std::string* gpu) const {
    for (auto& [name, claim] : directory_->claims())
        if (claim.node != self_.name && claim.account == caller.account && claim.machine == caller.machine &&
            (!gpu || claim.gpu == *gpu))
            return &claim;
    return nullptr;
}

std::optional<json> Membership::node_with_claim_of(const Caller& caller) {
    auto* claim = claim_elsewhere(caller, nullptr);
    return claim ? redirect_to(claim->node) : std::nullopt;
}

std::optional<json> Membership::elsewhere(const Caller& caller, const GpuWish& wish, Need need) {
    if (!directory_->standing().good()) return std::nullopt;  // what we know of others may be old
    sent_.forget_old(loop_.now());
    const auto who = caller.owner() + " " + caller.machine + " " + wish.gpu;
    if (need == Need::its_claim) {
        if (auto* claim = claim_elsewhere(caller, &wish.gpu)) return redirect_to(claim->node);
        // Its claim may be so new that it is not in the directory yet.
        auto* node = sent_.node_of(who);
        return node ? redirect_to(*node) : std::nullopt;
    }
    const PoolNode* best = nullptr;
    int best_left = 0;
    for (auto& [name, node] : directory_->nodes()) {
        auto count = node.types.find(wish.gpu);
        if (name == self_.name || node.draining || count == node.types.end() || count->second.total < wish.count)
            continue;
        const int free = count->second.free, left = free - sent_.on_way(name, wish.gpu);
        if (need == Need::free && free - sent_.on_way(name, wish.gpu, caller.user()) < wish.count) continue;
        if (best && left <= best_left) continue;
        best = &node;
        best_left = left;
    }
    if (!best) return std::nullopt;
    if (need == Need::free) sent_.note(who, {caller.user(), best->name, wish.gpu, wish.count}, loop_.now());
    return redirect_to(best->name);
}

}  // namespace tnr::server
