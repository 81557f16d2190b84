// What the processes of a claim give each other, as the supervisor keeps it: first by itself, with workers that are no
// processes, then in a real server whose workers send what is hard to close.
#include "gpu_server/supervisor/exchange.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "gpu_server/worker/event_page.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using nlohmann::json;
using worker::EventPage;

namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

// They say what the test says, and keep what they are told.
class PuppetWorkers : public Workers {
public:
    Result<Worker*> start(const std::vector<int>&, const std::vector<std::string>&) override {
        return Error{Error::Kind::internal, "no processes here"};
    }
    Result<> open_door(Worker&) override { return Ok{}; }
    void limit_threads(Worker&, size_t) override {}
    bool tell(Worker& worker, const json& message, int file) override {
        auto& answer = message.at("exchanged");
        answers[&worker][answer.at("ticket")] = answer;
        if (file >= 0) files[&worker] = UniqueFd(fcntl(file, F_DUPFD_CLOEXEC, 0));
        return true;
    }
    void kill(Worker&) override {}
    size_t ports_left() const override { return 0; }

    bool says(Worker& worker, const json& message, UniqueFd file = {}) {
        auto parsed = parse_worker_message(message.dump());
        return parsed && exchange_.message(worker, std::get<ExchangeMessage>(*parsed), std::move(file));
    }
    void ends(Worker& worker) { exchange_.gone(worker); }

    std::map<Worker*, std::map<uint64_t, json>> answers;  // by ticket
    std::map<Worker*, UniqueFd> files;
};

std::string name_of(uint64_t number) {
    char text[33];
    snprintf(text, sizeof text, "%032llx", static_cast<unsigned long long>(number));
    return text;
}

UniqueFd memory_file(size_t bytes, int seals) {
    UniqueFd file(memfd_create("thing", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
    if (seals != 0) REQUIRE(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
    return file;
}
UniqueFd event_file() {
    return memory_file(worker::event_page_bytes, F_SEAL_SHRINK | F_SEAL_GROW);
}

// One GPU with 1 GiB that two claims share, or several: the first has two workers, the second one.
class World {
public:
    explicit World(size_t gpu_count = 1) {
        for (auto* worker : {&one, &other, &stranger}) worker->gpus = {0};
        claims_ = {{&one, 1}, {&other, 1}, {&stranger, 2}};
        FoundGpu found;
        found.memory_bytes = 1024 * mib;
        gpus.add_later(std::vector(gpu_count, found));
    }

    bool lend(Worker& worker, uint64_t number, uint64_t bytes = mib) {
        json lend{
            {"lend", name_of(number)}, {"kind", "memory"}, {"device", 0}, {"bytes", bytes}, {"ticket", ++ticket_}};
        return workers.says(worker, {{"exchange", lend}}, memory_file(1, 0)) && ok(worker);
    }
    bool lend_event(Worker& worker, uint64_t number, UniqueFd file) {
        json lend{{"lend", name_of(number)}, {"kind", "event"}, {"ticket", ++ticket_}};
        return workers.says(worker, {{"exchange", lend}}, std::move(file)) && ok(worker);
    }
    bool borrow(Worker& worker, uint64_t number, const char* kind = "memory") {
        json borrow{{"borrow", name_of(number)}, {"kind", kind}, {"ticket", ++ticket_}};
        return workers.says(worker, {{"exchange", borrow}}) && ok(worker);
    }
    // The ticket that will be answered when nobody has it any more; 0: it makes no sense.
    uint64_t withdraw(Worker& worker, uint64_t number) {
        json withdraw{{"withdraw", name_of(number)}, {"ticket", ++ticket_}};
        return workers.says(worker, {{"exchange", withdraw}}) ? ticket_ : 0;
    }
    bool give_back(Worker& worker, uint64_t number) {
        return workers.says(worker, {{"return", {{"name", name_of(number)}}}});
    }
    bool answered(Worker& worker, uint64_t ticket) { return workers.answers[&worker].count(ticket) > 0; }
    uint64_t granted() { return gpus.at(0).memory.size() - gpus.at(0).memory.left(); }

    EventLoop loop;
    PuppetWorkers workers;
    Gpus gpus{loop, workers, [](const FoundGpu&, Wiped) -> Result<> { return Ok{}; }};
    Exchange exchange{workers, gpus, [this](const Worker& worker) { return claims_[&worker]; }, 1 << 20};
    Worker one, other, stranger;

private:
    bool ok(Worker& worker) { return workers.answers[&worker].at(ticket_).at("ok"); }
    std::map<const Worker*, int64_t> claims_;
    uint64_t ticket_ = 0;
};

}  // namespace

TEST_CASE("what one process of a claim lends another one gets, and no other claim's", "[exchange]") {
    World world;
    REQUIRE(world.lend(world.one, 1, 5 * mib));
    CHECK_FALSE(world.borrow(world.stranger, 1));
    CHECK(world.workers.files.empty());
    REQUIRE(world.borrow(world.other, 1));
    auto& answer = world.workers.answers[&world.other].rbegin()->second;
    CHECK(answer["bytes"] == 5 * mib);
    CHECK(answer["device"] == 0);
    CHECK(world.workers.files.count(&world.other) == 1);
    CHECK_FALSE(world.borrow(world.other, 1, "event"));  // it is memory
    CHECK_FALSE(world.borrow(world.other, 2));
    CHECK(world.lend(world.stranger, 1));     // the same name in another claim is another thing
    CHECK_FALSE(world.lend(world.other, 1));  // in this one it is taken
    CHECK(world.granted() == 0);              // the owner's session has it in its grant
}

TEST_CASE("what is withdrawn nobody gets any more, and its owner hears when nobody has it", "[exchange]") {
    World world;
    REQUIRE(world.lend(world.one, 1));
    REQUIRE(world.borrow(world.other, 1));
    REQUIRE(world.borrow(world.other, 1));
    CHECK(world.withdraw(world.other, 1) == 0);     // not the owner
    CHECK(world.withdraw(world.stranger, 1) == 0);  // not even of the claim
    auto ticket = world.withdraw(world.one, 1);
    REQUIRE(ticket != 0);
    CHECK(world.withdraw(world.one, 1) == 0);  // twice
    CHECK_FALSE(world.borrow(world.other, 1));
    CHECK(world.give_back(world.other, 1));
    CHECK_FALSE(world.answered(world.one, ticket));
    CHECK(world.give_back(world.other, 1));
    CHECK(world.answered(world.one, ticket));
    CHECK(world.exchange.things() == 0);
    CHECK(world.lend(world.one, 1));
    CHECK_FALSE(world.give_back(world.other, 1));  // it has not borrowed this one
}

TEST_CASE("a worker that vanishes leaves its memory to those who have it, and charged", "[exchange]") {
    World world;
    REQUIRE(world.lend(world.one, 1, 300 * mib));
    REQUIRE(world.lend(world.one, 2, 300 * mib));
    REQUIRE(world.borrow(world.other, 1));
    world.workers.ends(world.one);
    CHECK(world.exchange.things() == 1);
    CHECK(world.granted() == 300 * mib);
    SECTION("until they give it back") {
        CHECK(world.give_back(world.other, 1));
    }
    SECTION("or vanish, too") {
        world.workers.ends(world.other);
    }
    CHECK(world.exchange.things() == 0);
    CHECK(world.granted() == 0);
}

TEST_CASE("what is lent is its owner's to answer for, or a borrower's once that has ended", "[exchange]") {
    World world;
    world.one.pid = 11;
    world.other.pid = 12;
    const auto files_of = [&](pid_t process) {
        auto files = world.exchange.files();
        auto found = files.find(process);
        return found == files.end() ? size_t{0} : found->second.size();
    };
    REQUIRE(world.lend(world.one, 1));
    REQUIRE(world.lend(world.one, 2));
    REQUIRE(world.lend_event(world.one, 3, event_file()));  // a page, whoever has it
    REQUIRE(world.borrow(world.other, 2));
    CHECK(files_of(11) == 2);
    CHECK(world.withdraw(world.one, 2) != 0);
    CHECK(files_of(11) == 2);  // somebody has it yet
    world.workers.ends(world.one);
    CHECK(files_of(11) == 0);
    CHECK(files_of(12) == 1);
    CHECK(world.give_back(world.other, 2));
    CHECK(files_of(12) == 0);
}

TEST_CASE("a borrower that vanishes has given back", "[exchange]") {
    World world;
    REQUIRE(world.lend(world.one, 1));
    REQUIRE(world.borrow(world.other, 1));
    auto ticket = world.withdraw(world.one, 1);
    world.workers.ends(world.other);
    CHECK(world.answered(world.one, ticket));
    CHECK(world.exchange.things() == 0);
}

TEST_CASE("nobody waits for what a vanished process has recorded", "[exchange]") {
    World world;
    REQUIRE(world.lend_event(world.one, 1, event_file()));
    REQUIRE(world.borrow(world.other, 1, "event"));
    void* there = mmap(nullptr, sizeof(EventPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                       world.workers.files[&world.other].get(), 0);
    REQUIRE(there != MAP_FAILED);
    auto& page = *static_cast<EventPage*>(there);
    page.recorded = 3;
    page.word(1) = 1;
    world.workers.ends(world.one);
    CHECK(page.word(3) == 3);
    CHECK(page.word(2) == 2);
    page.recorded = ~uint64_t{0};  // a hostile worker's: that takes no longer
    world.workers.ends(world.other);
    munmap(there, sizeof page);
    CHECK(world.exchange.things() == 0);
}

TEST_CASE("what is no event's page, no name or no device is nonsense", "[exchange]") {
    World world;
    auto says_nonsense = [&](json message, UniqueFd file) {
        message["ticket"] = 1;
        return !world.workers.says(world.one, {{"exchange", message}}, std::move(file));
    };
    auto name = name_of(1);
    constexpr int seals = F_SEAL_SHRINK;
    CHECK(says_nonsense({{"lend", name}, {"kind", "event"}}, {}));
    CHECK(says_nonsense({{"lend", name}, {"kind", "event"}}, memory_file(worker::event_page_bytes, 0)));
    CHECK(says_nonsense({{"lend", name}, {"kind", "event"}}, memory_file(10, seals)));
    CHECK(says_nonsense({{"lend", "../x"}, {"kind", "event"}}, event_file()));
    CHECK(says_nonsense({{"lend", name}, {"kind", "memory"}, {"device", 1}, {"bytes", 1}}, memory_file(1, 0)));
    CHECK(says_nonsense({{"lend", name}, {"kind", "memory"}, {"device", 0}}, memory_file(1, 0)));
    CHECK(says_nonsense({{"steal", name}}, {}));
    Worker nobodys;
    CHECK_FALSE(world.workers.says(nobodys, {{"exchange", {{"lend", name}, {"kind", "event"}, {"ticket", 1}}}},
                                   event_file()));  // it serves no claim
    CHECK(world.exchange.things() == 0);
}

static void allow_many_descriptors() {
    rlimit descriptors{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    descriptors.rlim_cur = descriptors.rlim_max;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
}

TEST_CASE("all claims of a node together leave each its part of what can be lent", "[exchange]") {
    allow_many_descriptors();
    constexpr size_t gpus = 8, part = things_max / gpus;
    World world(gpus);
    for (uint64_t number = 0; number < part; ++number)
        if (!world.lend(world.one, number)) FAIL("refused at " << number);
    CHECK_FALSE(world.lend(world.one, part));
    world.stranger.gpus = {1, 2};
    for (uint64_t number = 0; number < 2 * part; ++number)
        if (!world.lend(world.stranger, number)) FAIL("refused at " << number);
    CHECK_FALSE(world.lend(world.stranger, 2 * part));
}

TEST_CASE("a claim lends so many things and no more; another one's are its own", "[exchange]") {
    allow_many_descriptors();
    World world;
    for (uint64_t number = 0; number < things_of_claim_max; ++number)
        if (!world.lend(number % 2 ? world.one : world.other, number)) FAIL("refused at " << number);
    CHECK_FALSE(world.lend(world.one, things_of_claim_max));
    CHECK(world.lend(world.stranger, 0));
    world.workers.ends(world.one);
    CHECK(world.exchange.things() == things_of_claim_max / 2 + 1);
    CHECK(world.lend(world.other, things_of_claim_max));
}

// ---- what workers can send

namespace {

size_t descriptors(const test::Server& server) {
    std::filesystem::directory_iterator all("/proc/" + std::to_string(server.pid) + "/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("no worker stops the supervisor by what is slow to close", "[exchange]") {
    // A socket that lingers for a minute: by itself, in a local socket, behind nonsense or an empty packet, beside
    // another descriptor.
    char letter = GENERATE('s', 'w', 'n', 'e', '2');
    CAPTURE(letter);
    test::Server server({"--plain", "--emulate", "h100"}, {"TNR_WORKER_FAKE_GPUS=1"});
    auto client = test::client_of(server);
    auto before = std::chrono::steady_clock::now();
    auto ask = [&] {
        auto answer = test::ask(*client, {{"op", "types"}});
        INFO(answer);
        CHECK(answer.contains("types"));
    };
    ask();
    REQUIRE(server.wait_for_note("worker "));
    auto had = descriptors(server);
    auto answer = test::ask(*client, test::session_request("trainer"));
    REQUIRE(answer.contains("endpoint"));
    auto connection = test::connect_to(answer["endpoint"]);
    const char command[] = {'!', letter};
    server.signal(SIGSTOP);  // until all is in its queue
    REQUIRE(send(connection.get(), command, sizeof command, MSG_NOSIGNAL) == sizeof command);
    REQUIRE(server.wait_for_note("has sent a trap"));
    server.signal(SIGCONT);
    REQUIRE(server.wait_for_log("talks nonsense"));
    ask();
    auto next = test::ask(*client, test::session_request("trainer"));  // the worker has ended, and been followed
    INFO(next);
    CHECK(next.contains("endpoint"));
    test::ask(*client, {{"op", "release"}, {"machine", "trainer"}});
    ask();
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(50));
    for (int looks = 0; looks < 400 && descriptors(server) > had; ++looks)  // until the next worker has been started
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(descriptors(server) <= had);
}
