// Claims, sessions, workers and GPUs as one state machine: whatever happens in whatever order, nothing outlives its claim,
// nobody waits for ever, and no memory passes from one owner to another unwiped. The supervisor's own code, in a world whose
// time, workers and wipes do what the test says: first all short orders of events, then long ones by chance.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "gpu_server/supervisor/claims.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

// Hundreds of thousands of claims: nobody reads the log.
const bool quiet = setenv("TNR_LOG", "error", 1) == 0 && freopen("/dev/null", "w", stderr);

class PaperLedger : public Ledger {
public:
    Result<int64_t> begin(const ClaimRecord&) override {
        open.insert(++last);
        return last;
    }
    Result<> note(const std::vector<ClaimNews>& news) override {
        for (auto& each : news) {
            if (!open.count(each.id)) wrong = "a claim was closed twice";
            if (each.ended) open.erase(each.id);
        }
        return Ok{};
    }
    Result<> note_wiped(int64_t id, const WipeRecord&) override {
        if (!wiped.insert(id).second) wrong = "one claim's GPU was wiped twice";
        return Ok{};
    }
    Result<std::vector<ClaimRecord>> close_open(const std::string&) override { return std::vector<ClaimRecord>(); }
    Result<std::vector<ClaimRecord>> claims_of(const std::optional<std::string>&, const LedgerPlace&, int) override {
        return std::vector<ClaimRecord>();
    }
    Result<> sync() override { return Ok{}; }
    std::set<int64_t> open, wiped;
    int64_t last = 0;
    std::string wrong;
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
    void connected(Worker& worker) { events_.connected(worker); }
    void away(Worker& worker, bool away) { events_.away(worker, away); }
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
    std::function<void(Worker&, const std::string& machine)> served;
    std::function<void(Worker&)> granted;
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
    void began(PoolClaim claim, std::function<void(Result<int64_t>)> done) override {
        if (!holders.emplace(claim.id, claim.machine).second || holders.size() > 1) wrong = "a GPU has two owners";
        asked.push_back({claim.id, std::move(done)});
        if (!slow) answer(true);
    }
    void ended(int64_t id, const std::vector<int>&) override {
        if (holders.erase(id) == 0) wrong = "a claim ended that never began";
        registered.erase(id);
    }
    Result<UniqueFd> fence(const std::string&, int64_t) override { return UniqueFd(); }
    void changed() override {}
    void look(const Question&, std::function<void()> then) override { then(); }
    int held_elsewhere(const std::string&) const override { return 0; }
    std::optional<nlohmann::json> elsewhere(const Caller&, const GpuWish&, Need) override { return std::nullopt; }

    void answer(bool good) {
        if (asked.empty()) return;
        auto [id, done] = std::move(asked.front());
        asked.pop_front();
        if (!good) return done(Error{Error::Kind::remote, "taken for dead"});
        registered.insert(id);
        done(++fences);
    }
    bool lets_serve(const std::string& machine) const {
        return std::any_of(holders.begin(), holders.end(),
                           [&](auto& one) { return one.second == machine && registered.count(one.first) > 0; });
    }
    bool cut = false, slow = false;
    std::deque<std::pair<int64_t, std::function<void(Result<int64_t>)>>> asked;
    std::map<int64_t, std::string> holders;  // by claim: machines
    std::set<int64_t> registered;
    int64_t fences = 0;
    std::string wrong;
};

class World {
public:
    World() {
        workers_.served = [this](Worker& worker, const std::string& machine) {
            if (!serving_.emplace(&worker, machine).second) complain("a worker was told to serve twice");
            if (!pool_.lets_serve(machine)) complain("a worker serves a claim that the pool does not know of");
            auto& last = last_machine_[worker.gpus[0]];
            if (!last.empty() && last != machine) complain("a GPU went to another unwiped");
            last = machine;
        };
        workers_.granted = [this](Worker& worker) {
            if (--wishes_[&worker] < 0) complain("a wish for memory was answered twice");
        };
        std::vector<FoundGpu> found(gpus_in_the_world);
        for (auto& gpu : found) gpu.type = "h100", gpu.memory_bytes = uint64_t{1} << 30;
        gpus_.add(found);
    }

    static constexpr int events = 22;
    void happens(int event) {
        switch (event) {
            case 0:
                return session("alice", std::to_string(++nonce_));
            case 1:
                return session("alice", std::to_string(nonce_));  // the answer was lost
            case 2:
                return release("alice");
            case 3:
                return session("bob", "");
            case 4:
                return release("bob");
            case 5:
                return with(Worker::State::starting, [&](Worker& one) { workers_.ready(one); });
            case 6:
                return with(Worker::State::dying, [&](Worker& one) { gone(one, ""); });
            case 7:
                return with(Worker::State::serving, [&](Worker& one) { gone(one, "its client has gone"); });
            case 8:
                return with(Worker::State::serving, [&](Worker& one) { gone(one, ""); });
            case 9:
                return with(Worker::State::starting, [&](Worker& one) { gone(one, ""); });
            case 10:
                return with(Worker::State::warm, [&](Worker& one) { gone(one, ""); });
            case 11:
                return wiped(1 << 20);
            case 12:
                return wiped(0);
            case 13:
                return pass();
            case 14:
                return with(Worker::State::serving, [&](Worker& one) { workers_.connected(one); });
            case 15:
                return with(Worker::State::serving, [&](Worker& one) { workers_.away(one, true); });
            case 16:
                return with(Worker::State::serving, [&](Worker& one) { workers_.away(one, false); });
            case 17:  // each of two asks for more than half
                return with(Worker::State::serving, [&](Worker& one) { want_memory(one); });
            case 18:
                pool_.slow = true;
                return;
            case 19:
                return pool_.answer(true);
            case 20:
                return pool_.answer(false);
            case 21:
                pool_.cut = !pool_.cut;
                return;
        }
    }

    // Both let go of all they have; then everything takes its course.
    std::string end() {
        for (auto until = now_ + wish_held_for; loop_.next_due() && *loop_.next_due() <= until;) pass();
        for (auto& [worker, wishes] : wishes_)
            if (worker->state == Worker::State::serving && wishes > 0) complain("a wish for memory is not answered");
        pool_.cut = pool_.slow = false;
        release("alice");
        release("bob");
        auto until = now_ + goodbye_grace;
        while (auto due = loop_.next_due()) {
            if (*due > until) break;
            pass();
        }
        for (auto& [worker, machine] : serving_)
            if (worker->state != Worker::State::dying) complain("a worker of " + machine + " outlives its claim");
        for (int rounds = 0; rounds < 100 && !settled(); ++rounds) {
            while (!pool_.asked.empty()) pool_.answer(true);
            while (auto* worker = workers_.in(Worker::State::dying)) gone(*worker, "");
            while (!wipes_.empty()) wiped(1 << 20);
            while (auto* worker = workers_.in(Worker::State::starting)) workers_.ready(*worker);
            if (loop_.next_due()) pass();
        }
        if (!claims_.all().empty()) complain("a claim does not end");
        if (!ledger_.open.empty()) complain("a claim stays open in the ledger");
        if (answered_ != asked_)
            complain("of " + std::to_string(asked_) + " requests " + std::to_string(answered_) + " were answered");
        for (auto& gpu : gpus_.all()) {
            if (gpu.state != Gpu::State::free) complain("a GPU is not free");
            if (!gpu.warm) complain("a GPU has no worker that waits");
        }
        if (workers_.all.size() != gpus_.all().size()) complain("a worker is left over");
        if (!ledger_.wrong.empty()) complain(ledger_.wrong);
        if (!pool_.wrong.empty()) complain(pool_.wrong);
        if (!pool_.holders.empty()) complain("a claim stays in the pool");
        return complaint_;
    }

private:
    static constexpr size_t gpus_in_the_world = 1;

    static Caller caller(const std::string& machine) { return {Caller::Role::open, "", machine, ""}; }
    void session(const std::string& machine, const std::string& nonce) {
        ++asked_;
        auto answered = std::make_shared<bool>(false);
        claims_.open_session(caller(machine), {"h100", 1}, {1, "p", nonce}, [this, answered](auto) {
            if (std::exchange(*answered, true)) complain("a request was answered twice");
            ++answered_;
        });
    }
    void release(const std::string& machine) {
        claims_.release(caller(machine), "released");
        for (auto& claim : claims_.all())
            if (claim->machine == machine && !claim->ending) complain("a claim goes on after its release");
    }
    void with(Worker::State state, const std::function<void(Worker&)>& act) {
        if (auto* worker = workers_.in(state)) act(*worker);
    }
    void want_memory(Worker& worker) {
        ++wishes_[&worker];
        workers_.wants_memory(worker);
    }
    void gone(Worker& worker, const std::string& last_word) {
        serving_.erase(&worker);
        wishes_.erase(&worker);
        workers_.exits(worker, last_word);
    }
    void wiped(uint64_t bytes) {
        if (wipes_.empty()) return;
        for (auto& worker : workers_.all)
            if (worker->state != Worker::State::dying && serving_.count(worker.get()))
                complain("a GPU is wiped under a worker that serves");
        auto wiped = std::move(wipes_.front());
        wipes_.erase(wipes_.begin());
        if (bytes > 0) last_machine_.clear();
        wiped({static_cast<int64_t>(bytes), 0, 0}, "stuck");
    }
    // Until the next timer has fired.
    void pass() {
        if (auto due = loop_.next_due()) now_ = std::max(now_, *due);
        loop_.run_once(milliseconds(0));
    }
    bool settled() {
        bool free = std::all_of(gpus_.all().begin(), gpus_.all().end(),
                                [](Gpu& gpu) { return gpu.state == Gpu::State::free && gpu.warm; });
        return free && claims_.all().empty() && answered_ == asked_ && !workers_.in(Worker::State::dying) &&
               !workers_.in(Worker::State::starting);
    }
    void complain(const std::string& what) {
        if (complaint_.empty()) complaint_ = what;
    }

    EventLoop::Clock::time_point now_{};
    EventLoop loop_{[this] { return now_; }};
    PaperLedger ledger_;
    PuppetWorkers workers_;
    std::vector<Wiped> wipes_;
    Gpus gpus_{loop_, workers_, [this](const FoundGpu&, Wiped wiped) -> Result<> {
                   wipes_.push_back(std::move(wiped));
                   return Ok{};
               }};
    Books books_{loop_, ledger_, "node"};
    PaperPool pool_;
    Claims claims_{
        loop_, gpus_, workers_, books_, {default_linger, true, "", 0, [](auto&) { return UserLimits{}; }, &pool_}};
    std::map<Worker*, std::string> serving_;   // worker → machine
    std::map<Worker*, int> wishes_;            // for memory, unanswered
    std::map<int, std::string> last_machine_;  // of a GPU, since it was wiped
    int nonce_ = 0, asked_ = 0, answered_ = 0;
    std::string complaint_;
};

// The world's complaint about these events, and what they were.
std::string try_out(const std::vector<int>& events) {
    World world;
    world.happens(11);  // the first wipe
    world.happens(5);   // a worker waits
    for (int event : events) world.happens(event);
    auto complaint = world.end();
    if (complaint.empty()) return "";
    complaint += ":";
    for (int event : events) complaint += " " + std::to_string(event);
    return complaint;
}

}  // namespace

TEST_CASE("two sessions, a release, and only then the second worker is ready: it serves nobody", "[orders]") {
    CHECK(try_out({0, 0, 2, 5}) == "");
    CHECK(try_out({0, 0, 2, 5, 13, 2}) == "");
}

TEST_CASE("no short order of events leaves anything behind", "[orders]") {
    REQUIRE(quiet);
    constexpr int length = 4;
    size_t tried = 0;
    std::vector<int> events(length, 0);
    for (bool more = true; more; ++tried) {
        if (auto complaint = try_out(events); !complaint.empty()) FAIL(complaint);
        int at = 0;
        while (at < length && ++events[static_cast<size_t>(at)] == World::events) events[static_cast<size_t>(at++)] = 0;
        more = at < length;
    }
    CHECK(tried == World::events * World::events * World::events * World::events);
}

TEST_CASE("no long one does, as far as chance finds any", "[orders]") {
    auto seed = GENERATE(1U, 2U, 3U);
    std::mt19937 random(seed);
    for (int walk = 0; walk < 3000; ++walk) {
        std::vector<int> events(5 + random() % 40);
        for (auto& event : events) event = static_cast<int>(random() % World::events);
        if (auto complaint = try_out(events); !complaint.empty()) FAIL(complaint);
    }
}
