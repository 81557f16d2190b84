// The ledger and the prices as operators and users meet them: a real server that is killed, keys of different people.
#include <signal.h>
#include <sys/socket.h>

#include <map>
#include <random>
#include <thread>

#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/supervisor/books.hpp"
#include "gpu_server/supervisor/ledger_sums.hpp"
#include "gpu_server/supervisor/price_commands.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::test;
using namespace std::chrono_literals;
using tnr::server::open_sqlite_ledger;

namespace {

using Clock = std::chrono::steady_clock;

std::vector<json> whole_ledger(tnr::control::Client& client, int64_t since = 0) {
    std::vector<json> lines;
    json request = {{"op", "ledger"}, {"since", since}};
    while (true) {
        auto answer = ask(client, request);
        INFO(answer);
        REQUIRE(answer.contains("claims"));
        lines.insert(lines.end(), answer["claims"].begin(), answer["claims"].end());
        if (answer["next"].is_null()) return lines;
        request.update(answer["next"]);
    }
}

void say(const tnr::UniqueFd& connection, const std::string& bytes) {
    REQUIRE(send(connection.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
}

Output prices(const std::string& state, std::vector<std::string> words) {
    words.insert(words.begin(), "prices");
    words.insert(words.end(), {"--state", state});
    return run_server_command(words);
}

}  // namespace

TEST_CASE("a claim's line says how long, how much, and what was wiped", "[server][ledger]") {
    Server server({"--plain", "--emulate", "h100", "--name", "rack-7", "--linger-ms", "0"});
    auto client = client_of(server);
    auto before = Clock::now();
    auto connection = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    say(connection, "v");
    std::this_thread::sleep_for(1200ms);         // time is what is measured
    auto running = whole_ledger(*client).at(0);  // up to now, not to when it was noted last
    CHECK(running["ended"] == false);
    CHECK(running["to"].get<int64_t>() - running["from"].get<int64_t>() >= 1200);
    connection.reset();
    REQUIRE(server.wait_for_log("wiped 1 MiB, free", 2));
    auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - before).count();
    auto line = whole_ledger(*client).at(0);
    INFO(line);
    CHECK(line["machine"] == "trainer");
    CHECK(line["gpu"] == "h100");
    CHECK(line["count"] == 1);
    CHECK(line["node"] == "rack-7");
    CHECK(line["ended"] == true);
    CHECK(line["reason"] == "its last process has ended");
    CHECK(line["bytes_up"] == 1000);
    CHECK(line["bytes_down"] == 10);
    CHECK(line["busy_ms"] == 700);
    CHECK(line["wiped_bytes"] == 1 << 20);
    CHECK(line["wipe_checked_bytes"] == 1 << 18);
    CHECK(line["wipe_ms"].get<int64_t>() < 10'000);
    auto lasted = line["to"].get<int64_t>() - line["from"].get<int64_t>();
    CHECK(lasted >= 1200);
    CHECK(lasted <= took);
}

TEST_CASE("a worker that lies about its traffic spoils no sum", "[server][ledger]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    int ended = 0;
    for (std::string lie : {R"({"moved": {"up": 18446744073709551615, "down": 11, "busy_ms": 800}})",
                            R"({"moved": {"up": 1001, "down": 11, "busy_ms": 18446744073709551615}})"}) {
        auto connection = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
        say(connection, "v" + lie + "\n");
        REQUIRE(server.wait_for_log("of trainer ended", ++ended));
    }
    auto lines = whole_ledger(*client);
    CHECK(lines.size() == 2);
    for (auto& line : lines) {  // what was told before the lie
        CHECK(line["bytes_up"] == 1000);
        CHECK(line["busy_ms"] <= line["to"].get<int64_t>() - line["from"].get<int64_t>());  // of one GPU
    }
}

TEST_CASE("kill -9 at any moment costs the ledger no more than seconds, and doubles nothing", "[server][ledger]") {
    auto folder = std::make_shared<Folder>();
    std::mt19937 random(4711);
    std::map<std::string, std::pair<Clock::duration, Clock::duration>> truth;  // machine → shortest, longest it can be
    for (int round = 0; round < 5; ++round) {
        Server server({"--plain", "--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"}, folder);
        auto client = client_of(server);
        struct Running {
            std::string machine;
            Clock::time_point asked, answered;
            tnr::UniqueFd connection;
        };
        std::vector<Running> running;
        auto start = [&](const std::string& name) {
            Running one{name + std::to_string(round), Clock::now(), {}, {}};
            auto answer = ask(*client, session_request(one.machine));
            INFO(answer);
            one.connection = connect_to(answer["endpoint"]);
            one.answered = Clock::now();
            running.push_back(std::move(one));
        };
        start("early");
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
        start("late");
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
        auto killed = Clock::now();
        server.signal(SIGKILL);
        server.wait_for_exit();
        for (auto& one : running) truth[one.machine] = {killed - one.answered, Clock::now() - one.asked};
    }
    Server again({"--plain", "--emulate", "h100"}, {}, folder);
    auto lines = whole_ledger(*client_of(again));
    CHECK(lines.size() == truth.size());
    for (auto& line : lines) {
        INFO(line);
        auto expected = truth.extract(line["machine"].get<std::string>());
        REQUIRE(expected);  // none twice
        auto lasted = std::chrono::milliseconds(line["to"].get<int64_t>() - line["from"].get<int64_t>());
        CHECK(lasted <= expected.mapped().second);
        CHECK(lasted >= expected.mapped().first - 5s);
        if (expected.mapped().first > 2s) CHECK(lasted > 0ms);
        CHECK(line["reason"] == "server restarted");
    }
    CHECK(truth.empty());
}

TEST_CASE("a claim lasts as long as a clock says that nobody sets", "[server][ledger]") {
    Folder folder;
    auto ledger = std::move(*open_sqlite_ledger(folder.path + "/pool.db"));
    Clock::time_point now{};
    tnr::server::EventLoop loop([&] { return now; });
    tnr::server::Books books(loop, *ledger, "node");
    auto first = *books.begin({0, "alice", "m", "h100", "u"});
    now += 5s;  // the pool's store takes its time
    books.count(first);
    now += 1500ms;
    loop.run_once(0ms);  // the second's note
    CHECK(ledger->claims_of("alice", {}, 9)->at(0).use.lasted_ms == 1500);
    now += 3600s;  // the calendar has not moved at all meanwhile
    books.end(first, "done");
    books.end(first, "again");
    CHECK_FALSE(books.use_of(first));
    auto line = ledger->claims_of("alice", {}, 9)->at(0);
    CHECK(line.use.lasted_ms == 3'601'500);
    CHECK(line.reason == "done");
    now += 10s;
    loop.run_once(0ms);
    CHECK_FALSE(loop.next_due());  // with nothing to note, nothing wakes us
}

TEST_CASE("everybody reads the bills of his own account alone", "[server][ledger]") {
    Server server({"--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto alice_keys = enroll(server, "alice"), bob_keys = enroll(server, "bob");
    auto alice = client_of(server, alice_keys), bob = client_of(server, bob_keys);
    auto machine_keys = tnr::wire::make_key_pair();
    REQUIRE_FALSE(ask(*alice, {{"op", "enroll_machine"}, {"name", "trainer"}, {"public_key", machine_keys.public_key}})
                      .contains("error"));
    auto machine = client_of(server, {alice_keys.server_public, machine_keys});
    REQUIRE(ask(*machine, session_request()).contains("session"));

    auto lines = whole_ledger(*alice);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0]["machine"] == "trainer");
    CHECK_FALSE(lines[0].contains("account"));
    for (const json& request :
         {json{{"op", "ledger"}}, json{{"op", "ledger"}, {"account", "alice"}, {"machine", "trainer"}},
          json{{"op", "ledger"}, {"since", 0}, {"behind", 0}, {"name", "alice"}}})
        CHECK(ask(*bob, request)["claims"].empty());
    CHECK(ask(*machine, {{"op", "ledger"}})["error"]["kind"] == "auth");
    for (json wrong : {json(-1), json("x"), json(1.5), json(~uint64_t{0}), json::array()}) {
        CHECK(ask(*bob, {{"op", "ledger"}, {"since", wrong}})["error"]["kind"] == "usage");
        CHECK(ask(*bob, {{"op", "prices"}, {"behind", wrong}})["error"]["kind"] == "usage");
    }
}

TEST_CASE("a long ledger comes by the page", "[server][ledger]") {
    auto folder = std::make_shared<Folder>();
    { Server server({"--plain", "--emulate", "h100"}, {}, folder); }
    auto ledger = std::move(*open_sqlite_ledger(folder->path + "/state/pool.db"));
    constexpr int claims = 1000;
    for (int i = 0; i < claims; ++i) {
        auto id = *ledger->begin({0, "", "m" + std::to_string(i), "h100", "u", "n", 1'000 + i / 7});
        REQUIRE(ledger->note({{id, {i % 5, 0, 0}, "done"}}));
    }
    Server server({"--plain", "--emulate", "h100"}, {}, folder);
    auto client = client_of(server);
    CHECK(ask(*client, {{"op", "ledger"}})["claims"].size() == tnr::server::ledger_lines_per_answer);
    std::map<std::string, int> seen;
    for (auto& line : whole_ledger(*client)) ++seen[line["machine"]];
    CHECK(seen.size() == claims);
    for (auto& [name, times] : seen) CHECK(times == 1);
    CHECK(whole_ledger(*client, 1'100).size() < claims / 2);
}

namespace {

// All there is between two borders, which no line may pass that is a sum.
struct Sums {
    std::map<std::string, int64_t> lines, held_ms, bytes_up;  // by machine
    size_t answers = 0, told = 0;
};

Sums sums_of(tnr::control::Client& client, const std::vector<int64_t>& borders) {
    Sums sums;
    json request = {{"op", "ledger"}, {"sums", true}, {"borders", borders}};
    while (true) {
        auto answer = ask(client, request);
        INFO(answer);
        REQUIRE(answer.contains("claims"));
        ++sums.answers;
        for (auto& line : answer["claims"]) {
            ++sums.told;
            sums.lines[line["machine"]] += line["lines"].get<int64_t>();
            sums.held_ms[line["machine"]] += line["held_ms"].get<int64_t>();
            sums.bytes_up[line["machine"]] += line["bytes_up"].get<int64_t>();
            for (int64_t border : borders)
                CHECK((line["lines"] == 1 || line["to"] <= border || line["from"] >= border));
        }
        if (answer["next"].is_null()) return sums;
        request.update(answer["next"]);
    }
}

}  // namespace

TEST_CASE("a long ledger that is only added up is told in few lines, and adds up to the same", "[server][ledger]") {
    auto folder = std::make_shared<Folder>();
    { Server server({"--plain", "--emulate", "h100"}, {}, folder); }
    auto ledger = std::move(*open_sqlite_ledger(folder->path + "/state/pool.db"));
    constexpr int64_t hour = 3'600'000, begin = 500'000 * hour, claims = 3'000;
    std::map<std::string, int64_t> lines, held_ms, bytes_up;
    for (int64_t i = 0; i < claims; ++i) {  // for three hours, some over the hour
        const bool run = i % 3 == 0;
        const auto name = run ? "run-pc-" + std::to_string(1'000 + i) : "m" + std::to_string(i % 3);
        const int64_t lasted = i % 5 * 700;
        auto id = *ledger->begin({0, "", name, i % 7 ? "h100" : "a100", i % 11 ? "u" : "u,v", "n", begin + i * 3'600});
        REQUIRE(ledger->note({{id, {lasted, i, 2 * i}, "done"}}));
        const auto who = run ? "run-pc-0" : name;
        ++lines[who], held_ms[who] += lasted, bytes_up[who] += i;
    }
    REQUIRE(prices(folder->path + "/state", {"set", "h100", "2/h"}).code == 0);
    Server server({"--plain", "--emulate", "h100"}, {}, folder);
    auto client = client_of(server);
    for (const auto& borders : {std::vector<int64_t>{}, {begin + 1'000'123, begin + 7'300'000}}) {
        auto sums = sums_of(*client, borders);
        CHECK(sums.lines == lines);
        CHECK(sums.held_ms == held_ms);
        CHECK(sums.bytes_up == bytes_up);
        CHECK(sums.answers == 1 + claims / tnr::server::ledger_lines_per_sum);
        CHECK(sums.told < claims / 4);  // a fifth lasted for no time at all
    }
    for (const json& wrong :
         {json("x"), json(7), json::array({"x"}), json::array({1.5}), json(std::vector<int>(65, 1))})
        CHECK(ask(*client, {{"op", "ledger"}, {"sums", true}, {"borders", wrong}})["error"]["kind"] == "usage");
}

// A short answer, and a long look: were only its bytes counted, one account could have all of the supervisor's time.
TEST_CASE("who asks for sums without end waits for them as for long answers", "[server][ledger]") {
    Server server({"--emulate", "h100"});
    auto alice = client_of(server, enroll(server, "alice"));
    auto ledger = std::move(*open_sqlite_ledger(server.folder->path + "/state/pool.db"));
    std::vector<tnr::server::ClaimNews> news;
    for (int i = 0; i < tnr::server::ledger_lines_per_sum; ++i)
        news.push_back({*ledger->begin({0, "alice", "m", "h100", "u", "n", 1'000 + i}), {5, 0, 0}, "done"});
    REQUIRE(ledger->note(news));
    const json request = {{"op", "ledger"}, {"sums", true}};
    const auto begun = Clock::now();
    constexpr double pages = 150, page_bytes = tnr::server::ledger_lines_per_sum * tnr::server::summed_line_costs_bytes;
    for (int i = 0; i < pages; ++i) REQUIRE(ask(*alice, request)["claims"].size() == 1);
    const double requests = pages * page_bytes / tnr::server::answer_bytes_per_request - tnr::server::requests_burst;
    const std::chrono::duration<double> took = Clock::now() - begun;
    CHECK(took.count() > requests / tnr::server::requests_per_second_max * 0.9);
}

TEST_CASE("a sum of the ledger is of one price and of one hour", "[ledger]") {
    using namespace tnr::server;
    constexpr int64_t hour = 3'600'000;
    auto claim = [](int64_t id, int64_t from, int64_t to, bool ended = true) {
        ClaimRecord one{id, "alice", "trainer", "h100", "u", "n", from, {to - from, 1, 2, 3}, ended};
        one.wipe = WipeRecord{10, 5, 1};
        return one;
    };
    LedgerSums sums(
        {}, {{1, "h100", 100, "USD", 1'000'000}, {2, "h100", 2'000, "USD", 2'000'000}, {3, "a100", 150, "USD", 1}});
    sums.add(claim(1, 100, 200));
    sums.add(claim(2, 140, 2'000));       // up to the price's change
    sums.add(claim(3, 1'999, 2'001));     // over it
    sums.add(claim(4, 2'000, 3'000));     // behind it
    sums.add(claim(5, 3'000, hour));      // up to the hour
    sums.add(claim(6, 3'000, hour + 1));  // over it
    sums.add(claim(7, hour, hour + 5));
    sums.add(claim(8, 100, 300, false));  // runs
    sums.add(claim(9, 100, 100));         // no time
    std::vector<std::vector<int64_t>> told;
    for (const auto& sum : sums.sums()) told.push_back({sum.lines, sum.all.began_ms, sum.all.until_ms(), sum.held_ms});
    CHECK(told == std::vector<std::vector<int64_t>>{{2, 100, 2'000, 1'960},
                                                    {1, 1'999, 2'001, 2},
                                                    {2, 2'000, hour, hour - 2'000},
                                                    {1, 3'000, hour + 1, hour - 2'999},
                                                    {1, hour, hour + 5, 5},
                                                    {1, 100, 300, 200},
                                                    {1, 100, 100, 0}});
    CHECK(sums.sums()[0].all.use.bytes_down == 4);
    CHECK(sums.sums()[0].all.wipe->checked_bytes == 10);
}

TEST_CASE("the operator's price is everybody's at once, and its history stays", "[server][ledger]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    auto state = server.folder->path + "/state";
    CHECK_FALSE(ask(*client, {{"op", "types"}})["types"][0].contains("price"));
    auto set = prices(state, {"set", "H100", "2.49/h"});
    CHECK(set.code == 0);
    CHECK(set.out == "From now on an hour of h100 costs 2.49 USD\n");
    CHECK(ask(*client, {{"op", "types"}})["types"][0]["price"] == json{{"currency", "USD"}, {"per_hour", 2.49}});
    CHECK(prices(state, {"set", "h100", "1.9EUR"}).code == 0);
    CHECK(prices(state, {}).out.find("1.90 EUR/h\n") != std::string::npos);
    CHECK(prices(state, {}).out.find("2.49") == std::string::npos);
    CHECK(prices(state, {"remove", "h100"}).code == 0);
    CHECK(prices(state, {"remove", "h100"}).code == 1);
    CHECK_FALSE(ask(*client, {{"op", "types"}})["types"][0].contains("price"));
    auto history = ask(*client, {{"op", "prices"}})["prices"];
    REQUIRE(history.size() == 3);
    CHECK(history[0]["per_hour"] == 2.49);
    CHECK(history[1]["currency"] == "EUR");
    CHECK(history[2]["per_hour"].is_null());
    CHECK(history[0]["since"] < history[1]["since"]);
    auto listed = prices(state, {"list", "--history"}).out;
    CHECK(listed.find("2.49 USD/h\n") != std::string::npos);
    CHECK(listed.find("none\n") != std::string::npos);
    CHECK(prices("/nowhere/at/all", {}).code == 2);
    CHECK(prices(state, {"set", "h 100", "1/h"}).code == 2);
}

TEST_CASE("a price for a type that no node has is set, with a word about it", "[server][ledger]") {
    Server server({"--plain", "--emulate", "h100"});
    auto state = server.folder->path + "/state";
    CHECK(prices(state, {"set", "h100", "2/h"}).err.empty());
    auto misspelt = prices(state, {"set", "h1000", "2/h"});
    CHECK(misspelt.code == 0);
    CHECK(misspelt.out == "From now on an hour of h1000 costs 2.00 USD\n");
    CHECK(misspelt.err ==
          "note: no node of the pool has a GPU of type h1000 now; they have: h100\n"
          "hint: the price holds once one has; if the name is misspelt: tnr-gpu-server prices remove h1000\n");
    CHECK(prices(state, {"remove", "h1000"}).code == 0);
    server.signal(SIGTERM);
    CHECK(server.wait_for_exit() == 0);
    CHECK(prices(state, {"set", "h100", "3/h"}).err.find("note: no node of the pool is there now") == 0);
}

TEST_CASE("a price is exact, or refused", "[server][ledger]") {
    using tnr::server::parse_price;
    CHECK(parse_price("2.49/h")->micros == 2'490'000);
    CHECK(parse_price("0/h")->micros == 0);
    CHECK(parse_price("0.000001")->micros == 1);
    CHECK(parse_price("$12/h")->currency == "USD");
    CHECK(parse_price("1 eur/h")->currency == "EUR");
    CHECK(parse_price("123456789.5/h")->micros == 123'456'789'500'000);
    for (auto* wrong : {"", "/h", "free", "-1/h", "1e3/h", "1.2.3/h", ".5/h", "1./h", "2.49/d", "$1EUR/h", "1EURO/h",
                        "0.0000001/h", "1234567890/h", "nan", "0x10/h"}) {
        INFO(wrong);
        CHECK_FALSE(parse_price(wrong));
    }
}
