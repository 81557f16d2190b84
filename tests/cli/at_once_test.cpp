// Several `tnr` that change one of the user's files at the same time.
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "cli/clouds.hpp"
#include "cli/config.hpp"
#include "cli/logins.hpp"
#include "cli/money/budget.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

constexpr int writers = 8, turns = 12;

// How many could not do what `change` does.
int failures_of(const std::function<bool(int writer, int turn)>& change) {
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int writer = 0; writer < writers; ++writer)
        threads.emplace_back([&, writer] {
            for (int turn = 0; turn < turns; ++turn) failures += !change(writer, turn);
        });
    for (auto& thread : threads) thread.join();
    return failures;
}

std::string own_number(int writer, int turn) {
    return std::to_string(1 + writer * turns + turn);
}

}  // namespace

TEST_CASE("of what several tnr write into one file at the same time nothing is lost", "[cli][records]") {
    test::TemporaryFolder folder;
    const std::string path = folder / "config/file.json";  // nobody has made the folder yet
    SECTION("pools signed in to") {
        const auto server = wire::make_key_pair(), own = wire::make_key_pair();
        const cli::PoolLogin first{"tcp://first:1", {server.public_key, own}};
        REQUIRE(cli::Logins(path).save(first));
        CHECK(failures_of([&](int writer, int turn) {
                  cli::Logins logins(path);
                  if (writer == 0)
                      return static_cast<bool>(
                          logins.renew("tcp://first:1", turn % 2 ? server.public_key : own.public_key));
                  return static_cast<bool>(logins.save({"tcp://pool:" + own_number(writer, turn), first.keys}));
              }) == 0);
        CHECK(cli::Logins(path).all()->size() == 1 + size_t{writers - 1} * turns);
    }
    SECTION("clouds signed in to") {
        CHECK(failures_of([&](int writer, int turn) {
                  Credentials credentials;
                  credentials.values["token"] = "x";
                  return static_cast<bool>(
                      cli::CloudLogins(path).save("cloud" + own_number(writer, turn), credentials));
              }) == 0);
        int found = 0;
        for (int i = 1; i <= writers * turns; ++i)
            found += cli::CloudLogins(path).find("cloud" + std::to_string(i))->has_value();
        CHECK(found == writers * turns);
    }
    SECTION("settings") {
        test::FakeSession fake;
        CHECK(failures_of([&](int writer, int turn) {
                  return static_cast<bool>(cli::Config(fake.session).set("setting" + own_number(writer, turn), "x"));
              }) == 0);
        CHECK(cli::Config(fake.session).all()->size() == size_t{writers} * turns);
    }
    SECTION("budgets") {
        CHECK(failures_of([&](int writer, int turn) {
                  cli::Budgets budgets(path);
                  const std::string provider = "provider" + own_number(writer, turn);
                  const bool set = static_cast<bool>(budgets.set({provider, 1, "EUR", "month"}));
                  return set && (writer > 0 || budgets.remove(provider));
              }) == 0);
        CHECK(cli::Budgets(path).all()->size() == size_t{writers - 1} * turns);
    }
}
