// Claims, sessions, workers and GPUs as one state machine: whatever happens in whatever order, nothing outlives its claim,
// nobody waits for ever, and no memory passes from one owner to another unwiped. The supervisor's own code, in a world whose
// time, workers and wipes do what the test says: first all short orders of events, then long ones by chance.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "paper_world.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

namespace {

// Hundreds of thousands of claims: nobody reads the log.
const bool quiet = setenv("TNR_LOG", "error", 1) == 0 && freopen("/dev/null", "w", stderr);

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

    static constexpr int events = 25;
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
                if ((pool_.cut = !pool_.cut)) return;
                return claims_.lease_renewed();
            case 22:
                return session("bob", "patient", std::chrono::hours(1));
            case 23:
                return pool_.answer_that_others_came_first();
            case 24:
                pool_.moved = !pool_.moved;
                return;
        }
    }

    // Both let go of all they have; then everything takes its course.
    std::string end() {
        for (auto until = now_ + wish_held_for; loop_.next_due() && *loop_.next_due() <= until;) pass();
        for (auto& [worker, wishes] : wishes_)
            if (worker->state == Worker::State::serving && wishes > 0) complain("a wish for memory is not answered");
        pool_.cut = pool_.slow = pool_.moved = false;
        claims_.lease_renewed();
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
    void session(const std::string& machine, const std::string& nonce, std::chrono::seconds wait = {}) {
        ++asked_;
        auto answered = std::make_shared<bool>(false);
        claims_.open_session(caller(machine), {"h100", 1, wait, 0, 0}, {1, "p", nonce}, [this, answered](auto) {
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
