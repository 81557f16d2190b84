// What stands around the supervisor's own code in tests without processes, time or a network: its ledger, its workers and the
// other nodes, which do what the test says.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gpu_server/supervisor/claims.hpp"

namespace tnr::server::test {

class PaperLedger : public Ledger {
public:
    Result<int64_t> begin(const ClaimRecord&) override {
        open.insert(++last);
        return last;
    }
    Result<> note(const std::vector<ClaimNews>& news) override {
        if (full) return no_room();
        for (auto& each : news) {
            if (!open.count(each.id)) wrong = "a claim was closed twice";
            if (each.ended) open.erase(each.id);
        }
        return Ok{};
    }
    Result<> note_wiped(int64_t id, const WipeRecord&) override {
        if (full) return no_room();
        if (!wiped.insert(id).second) wrong = "one claim's GPU was wiped twice";
        return Ok{};
    }
    Result<std::vector<ClaimRecord>> close_open(const std::string&, const std::set<int64_t>&) override {
        return std::vector<ClaimRecord>();
    }
    Result<std::vector<ClaimRecord>> claims_of(const std::optional<std::string>&, const LedgerPlace&, int) override {
        return std::vector<ClaimRecord>();
    }
    Result<> sync() override { return Ok{}; }
    std::set<int64_t> open, wiped;
    int64_t last = 0;
    bool full = false;  // its disk: it takes nothing in
    std::string wrong;

private:
    static Error no_room() { return {Error::Kind::internal, "the disk is full"}; }
};

// Workers that are no processes: what they do is told by the test.
class PuppetWorkers : public Workers {
public:
    Result<Worker*> start(const std::vector<int>& gpus, const std::vector<std::string>&) override {
        auto worker = std::make_unique<Worker>();
        worker->gpus = gpus;
        worker->devices.resize(gpus.size());
        for (auto& device : worker->devices) device.memory_bytes = uint64_t{1} << 30;
        all.push_back(std::move(worker));
        return all.back().get();
    }
    Result<> open_door(Worker&) override { return Ok{}; }
    void limit_threads(Worker& worker, size_t most) override { worker.threads = most; }
    bool tell(Worker& worker, const nlohmann::json& message, int) override {
        if (worker.state == Worker::State::dying) return false;
        if (auto serve = message.find("serve"); serve != message.end()) served(worker, (*serve)["machine"]);
        if (message.contains("granted")) granted(worker);
        return true;
    }
    void kill(Worker& worker) override { worker.state = Worker::State::dying; }
    size_t ports_left() const override { return 100; }

    Worker* in(Worker::State state) const {
        for (auto& worker : all)
            if (worker->state == state) return worker.get();
        return nullptr;
    }
    void ready(Worker& worker) {
        worker.state = Worker::State::warm;
        events_.ready(worker);
    }
    void connected(Worker& worker) {
        if (!events_.connected(worker)) kill(worker);
    }
    void away(Worker& worker, bool away) {
        if (!events_.away(worker, away)) kill(worker);
    }
    void wants_memory(Worker& worker) { events_.wants_memory(worker, {0, uint64_t{700} << 20, 1}); }
    void exits(Worker& worker, const std::string& last_word) {
        worker.state = Worker::State::dying;
        worker.last_word = last_word;
        auto at = std::find_if(all.begin(), all.end(), [&](auto& one) { return one.get() == &worker; });
        auto owned = std::move(*at);
        all.erase(at);
        events_.gone(worker, "exited");
    }
    std::vector<std::unique_ptr<Worker>> all;
    std::function<void(Worker&, const std::string& machine)> served = [](auto&, auto&) {};
    std::function<void(Worker&)> granted = [](auto&) {};
};

// The other nodes of a pool: let a claim be at once, or when the test says so.
class PaperPool : public PoolLink {
public:
    Result<> may_begin() const override {
        if (cut) return Error{Error::Kind::remote, "out of touch"};
        return Ok{};
    }
    bool draining() const override { return false; }
    int64_t lease_until_ms() const override { return 0; }
    bool nothing_elsewhere(const std::string&) const override { return held == 0 && !moved; }
    void began(PoolClaim claim, Directory::Unless unless, std::function<void(Result<int64_t>)> done) override {
        const bool once_more = others_came_first.erase(claim.id) > 0;
        if (holders.emplace(claim.id, claim.machine).second == once_more || holders.size() > 1)
            wrong = "a GPU has two owners";
        asked.push_back({claim.id, unless, std::move(done)});
        if (!slow) answer(true);
    }
    void ended(int64_t id, const std::vector<int>&) override {
        if (holders.erase(id) == 0) wrong = "a claim ended that never began";
        registered.erase(id);
        others_came_first.erase(id);
    }
    Result<UniqueFd> fence(const std::string&, int64_t) override { return UniqueFd(); }
    void changed() override {}
    void look(const Question& question, std::function<void()> then) override {
        if (cut || question == Question{}) return then();
        looks.push_back(std::move(then));
        if (!slow_looks) answer_look();
    }
    std::map<std::string, Elsewhere> offered_elsewhere() const override {
        if (moved) return {{"h100", {2, 2, 2, 0}}};
        return {};
    }
    int held_elsewhere(const std::string&, int64_t) const override { return held; }
    std::optional<nlohmann::json> elsewhere(const Caller&, const GpuWish&, Need need) override {
        if (!moved || need != Need::its_claim) return std::nullopt;
        return nlohmann::json{{"redirect", "there"}};
    }

    void answer_that_others_came_first() {
        if (asked.empty() || asked.front().unless != Directory::Unless::others) return;
        auto one = std::move(asked.front());
        asked.pop_front();
        if (holders.count(one.claim)) others_came_first.insert(one.claim);
        one.done(0);
    }
    void answer(bool good) {
        if (asked.empty()) return;
        auto [id, unless, done] = std::move(asked.front());
        asked.pop_front();
        if (!good) return done(Error{Error::Kind::remote, "taken for dead", "what helps"});
        registered.insert(id);
        done(++fences);
    }
    void answer_look() {
        if (looks.empty()) return;
        moved |= std::exchange(moves_unseen, false);
        auto then = std::move(looks.front());
        looks.pop_front();
        then();
    }
    bool lets_serve(const std::string& machine) const {
        return std::any_of(holders.begin(), holders.end(),
                           [&](auto& one) { return one.second == machine && registered.count(one.first) > 0; });
    }
    bool cut = false, slow = false;
    bool moved = false;                             // every machine has a claim at another node
    bool moves_unseen = false, slow_looks = false;  // and nobody has heard of it: the next look tells
    std::deque<std::function<void()>> looks;
    int held = 0;  // GPUs of every account at other nodes
    struct Asked {
        int64_t claim;
        Directory::Unless unless;
        std::function<void(Result<int64_t>)> done;
    };
    std::deque<Asked> asked;
    std::set<int64_t> others_came_first;     // and it has not been asked again
    std::map<int64_t, std::string> holders;  // by claim: machines
    std::set<int64_t> registered;
    int64_t fences = 0;
    std::string wrong;
};

// A node with one GPU and all of the above around it. Time stands still unless it is told to pass.
class PaperNode {
public:
    void pass(std::chrono::milliseconds time) {
        for (const auto until = now_ + time; now_ < until; loop_.run_once(std::chrono::milliseconds(0)))
            now_ = std::min(until, std::max(now_, loop_.next_due().value_or(until)));
    }

protected:
    explicit PaperNode(ClaimOptions options) : claims_(loop_, gpus_, workers_, books_, std::move(options)) {}
    static ClaimOptions plain() {
        ClaimOptions options;
        options.plain = true;
        return options;
    }
    void finds_its_gpu(uint64_t memory_bytes = 0) {
        FoundGpu gpu;
        gpu.type = "h100";
        gpu.memory_bytes = memory_bytes;
        gpus_.add({gpu});
        takes_its_course();
    }
    // Who is to die is dead, then the GPU is wiped, then the next tenant's worker is there.
    void takes_its_course() {
        while (auto* worker = workers_.in(Worker::State::dying)) workers_.exits(*worker, "");
        if (auto done = std::exchange(wiped_, nullptr)) done({1 << 20, 0, 0}, "");
        if (auto* worker = workers_.in(Worker::State::starting)) workers_.ready(*worker);
    }

    EventLoop::Clock::time_point now_ = EventLoop::Clock::time_point{} + std::chrono::hours(1);
    EventLoop loop_{[this] { return now_; }};
    PaperLedger ledger_;
    PuppetWorkers workers_;
    Wiped wiped_;
    Gpus gpus_{loop_, workers_, [this](const FoundGpu&, Wiped wiped) -> Result<> {
                   wiped_ = std::move(wiped);
                   return Ok{};
               }};
    Books books_{loop_, ledger_, "node"};
    Claims claims_;
};

}  // namespace tnr::server::test
