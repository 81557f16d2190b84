// The last day of several nodes as one: what another node says is added, whatever it says.
#include "gpu_server/watch/day.hpp"

#include <nlohmann/json.hpp>

#include "gpu_server/watch/day_book.hpp"
#include "gpu_server/watch/limits.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::watch;
using nlohmann::json;

namespace {

server::LedgerReport some_day(int64_t to_ms, const std::string& user, double gpu_s) {
    server::LedgerReport day;
    day.from_ms = to_ms - day_ms;
    day.to_ms = to_ms;
    day.parts.resize(day_parts);
    day.parts[90] = {gpu_s, gpu_s / 2, 1};
    day.users = {{user, 1, gpu_s, gpu_s / 2, 1, 100, 10, {{"USD", 0.25}}}};
    return day;
}

FellowDay said(const std::string& node, const json& day) {
    return {node, std::make_shared<const json>(day)};
}

const json& user_of(const json& day, const std::string& name) {
    static const json none;
    for (auto& user : day.at("users"))
        if (user.at("user") == name) return user;
    return none;
}

// Its ledger has as many users as it was read times before.
class CountingLedger : public server::LedgerReader {
public:
    Result<server::LedgerReport> report(int64_t from_ms, int64_t to_ms, int parts, int64_t) override {
        server::LedgerReport report;
        report.from_ms = from_ms;
        report.to_ms = to_ms;
        report.parts.resize(static_cast<size_t>(parts));
        if (++times_ == 1) return Error{Error::Kind::internal, "the disk is away"};
        report.users.resize(static_cast<size_t>(times_));
        return report;
    }

private:
    int times_ = 0;
};

}  // namespace

TEST_CASE("what all nodes' ledgers have of a user is one sum", "[watch]") {
    constexpr int64_t now = 1'800'000'000'000;
    const auto a = some_day(now, "alice", 50);
    // Read a while before, and by a clock that is not quite ours: of the same quarter of an hour.
    auto b = some_day(now - 40'000, "alice", 100);
    b.users.push_back({"bob", 2, 400, 0, 0, 0, 0, {}});
    b.users[0].cost["EUR"] = 1;
    const auto day =
        whole_day(a, "a", {"b", "c", "d"}, {said("b", to_json(b)), said("c", to_json(some_day(now, "carol", 1)))});
    CHECK(day["nodes"] == json{"a", "b", "c"});
    CHECK(day["silent"] == json{"d"});
    CHECK(day["users"][0]["user"] == "bob");  // who used most
    auto& alice = user_of(day, "alice");
    CHECK(alice["claims"] == 2);
    CHECK(alice["gpu_s"] == 150);
    CHECK(alice["busy_s"] == 75);
    CHECK(alice["unpriced_s"] == 2);
    CHECK(alice["bytes_up"] == 200);
    CHECK(alice["bytes_down"] == 20);
    CHECK(alice["cost"] == json{{{"currency", "EUR"}, {"amount", 1.0}}, {{"currency", "USD"}, {"amount", 0.5}}});
    CHECK(day["parts"][90]["held_s"] == 151);
    CHECK(day["parts"][90]["busy_s"] == 75.5);
    CHECK(day["parts"][90]["claims"] == 3);
    CHECK(day["whole"] == true);
}

TEST_CASE("what a node said before it went, or fell silent, is in the day, and it says as of when", "[watch]") {
    constexpr int64_t now = 1'800'000'000'000;
    auto gone = said("b", to_json(some_day(now, "bob", 8)));
    gone.gone = true, gone.earlier_ms = now - 5'000, gone.gpus = 4;
    auto silent = said("c", to_json(some_day(now, "carol", 16)));
    silent.earlier_ms = now - 9'000;
    const FellowDay never{"d", nullptr, 0, true}, unheard{"e", nullptr, 0, false};
    const auto day = whole_day(some_day(now, "alice", 1), "a", {"c", "e"}, {gone, silent, never, unheard});
    CHECK(day["nodes"] == json{"a"});
    CHECK(day["silent"] == json{"e"});
    CHECK(day["gone"] == json{"d"});
    CHECK(day["earlier"] == json{{{"node", "b"}, {"at", now - 5'000}, {"gone", true}, {"gpus", 4}},
                                 {{"node", "c"}, {"at", now - 9'000}, {"gone", false}, {"gpus", 0}}});
    CHECK(user_of(day, "bob")["gpu_s"] == 8);
    CHECK(user_of(day, "carol")["gpu_s"] == 16);
    CHECK(day["parts"][90]["held_s"] == 25);
}

TEST_CASE("of a day that is another's by hours only that part is added which is of ours", "[watch]") {
    constexpr int64_t now = 1'800'000'000'000, quarter = day_ms / day_parts;
    const auto day = [&](int64_t later) {
        return whole_day(some_day(now, "a", 1), "a", {"b"}, {said("b", to_json(some_day(now + later, "b", 8)))});
    };
    CHECK(day(2 * quarter)["parts"][92]["held_s"] == 8);
    CHECK(day(2 * quarter)["parts"][90]["held_s"] == 1);
    const auto of_next_year = day(365 * day_ms);
    double held = 0;
    for (auto& part : of_next_year["parts"]) held += part["held_s"].get<double>();
    CHECK(held == 1);
}

TEST_CASE("a node that talks nonsense of its day is silent, and no sum is no number", "[watch]") {
    constexpr int64_t now = 1'800'000'000'000;
    const auto good = to_json(some_day(now, "bob", 5));
    auto with = [&](const char* name, const json& value) {
        auto changed = good;
        changed[json::json_pointer(name)] = value;
        return changed;
    };
    for (auto& bad :
         std::vector<json>{{},
                           json::array(),
                           "x",
                           with("/from", "x"),
                           with("/parts", json::array()),
                           with("/parts", json::array({1})),
                           with("/parts/5", nullptr),
                           with("/users", 7),
                           with("/users/0/user", 7),
                           with("/users/0/gpu_s", "1"),
                           with("/users/0/cost", 1),
                           with("/users/0/cost", json::array({1})),
                           with("/whole", 1),
                           with("/users", json(std::vector<json>(report_users_max + 1, good["users"][0])))}) {
        INFO(bad.dump().substr(0, 200));
        const auto day = whole_day(some_day(now, "alice", 50), "a", {"b"}, {said("b", bad)});
        CHECK(day["silent"] == json{"b"});
        CHECK(day["users"].size() == 1);
    }
    const auto huge = whole_day(
        some_day(now, "alice", 50), "a", {"b"},
        {said("b", with("/users/0/gpu_s", 1e308)), said("b", with("/users/0/gpu_s", 1e308)), said("unknown", good)});
    CHECK(huge["nodes"] == json{"a", "b"});  // each once
    CHECK(user_of(huge, "bob")["gpu_s"] == report_amount_max);
    CHECK(user_of(whole_day(some_day(now, "alice", 50), "a", {"b"}, {said("b", with("/users/0/gpu_s", -7))}),
                  "bob")["gpu_s"] == 0);
    CHECK(whole_day(some_day(now, "alice", 50), "a", {"b"}, {said("b", with("/from", int64_t{1} << 62))}).is_object());
}

TEST_CASE("the ledger is read once for all who ask, and a failure is no answer for long", "[watch]") {
    DayBook book(std::make_unique<CountingLedger>());
    CHECK(book.latest() == nullptr);
    auto first = book.fresh();
    // The first reading was begun by latest(), and may have failed before fresh() asked for another.
    if (!first) first = book.fresh();
    REQUIRE(first);
    const auto read = *first;
    CHECK(read->users.size() == 2);
    CHECK(read->parts.size() == day_parts);
    CHECK(*book.fresh() == read);
    CHECK(book.latest() == read);
}
