// An account with so many machines that etcd does not take its removal at once: it leaves in steps.
#include <algorithm>
#include <future>
#include <random>

#include "gpu_server/pool/sqlite_image.hpp"
#include "gpu_server/pool/store.hpp"
#include "tests/gpu_server/pool/own_etcd.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

constexpr int users = 20, machines_each = 200;
const std::string large = "large";

// Some 5,000 keys that came in no order over the months, so that an account's are on pages all over.
struct ManyKeys {
    std::map<std::string, std::vector<std::string>> of;  // by account, its own first
    StoreImage copy;

    ManyKeys() : copy(std::move(*open_store_image(""))) {
        std::vector<std::string> order;
        auto add = [&](const std::string& account, int64_t machines) {
            REQUIRE(copy.store->add_account(account, enrolled(account), false));
            order.insert(order.end(), static_cast<size_t>(machines), account);
        };
        for (int i = 0; i < users; ++i) add("u" + std::to_string(i), machines_each);
        add(large, machines_per_account_max);
        std::shuffle(order.begin(), order.end(), dice_);
        for (auto& account : order) {
            const auto name = "machine-" + std::to_string(of[account].size());
            REQUIRE(copy.store->put_machine(account, name, enrolled(account)));
        }
    }

    // As nodes have written it.
    void put_into(const OwnEtcd& etcd) {
        constexpr size_t page_bytes = 4096, at_once = 100 * page_bytes;
        const auto image = copy.image(), root = etcd.address().prefix + "accounts/";
        etcd::Client client(etcd.address(), {.total_ms = 5'000});
        for (size_t from = 0; from < image.size(); from += at_once) {
            etcd::Txn txn;
            for (size_t at = from; at < std::min(from + at_once, image.size()); at += page_bytes) {
                auto number = std::to_string(at / page_bytes), key = root + "pages/";
                key.append(8 - number.size(), '0').append(number);
                txn.put(key, image.substr(at, page_bytes));
            }
            REQUIRE(client.commit(txn));
        }
        REQUIRE(client.commit(etcd::Txn().put(root + "head", std::to_string(image.size() / page_bytes))));
    }

private:
    const std::string& enrolled(const std::string& account) {
        std::string key(40, ' ');
        for (auto& letter : key) letter = static_cast<char>(std::uniform_int_distribution<int>('0', 'z')(dice_));
        return of[account].emplace_back(key);
    }
    std::mt19937 dice_{1};
};

// How many of the keys are let in.
int64_t let_in(Store& store, const std::vector<std::string>& keys) {
    return std::count_if(keys.begin(), keys.end(), [&](auto& key) { return store.find_key(key)->has_value(); });
}

}  // namespace

TEST_CASE("an account whose keys are on more pages than etcd takes at once leaves, or gets a new key, in steps",
          "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd etcd;
    ManyKeys keys;
    REQUIRE(keys.copy.store->set_limits("u3", {.gpus_max = 2}));
    keys.put_into(etcd);
    auto here = open_etcd_store(etcd.address()), there = open_etcd_store(etcd.address());
    REQUIRE(here);
    REQUIRE(there);
    REQUIRE(let_in(**there, keys.of[large]) == machines_per_account_max + 1);

    auto check = [&](const Result<>& done, const std::string& gone) {
        INFO((done ? "" : done.error().what));
        REQUIRE(done);
        CHECK(let_in(**here, keys.of[gone]) == 0);
        keys.of.erase(gone);
    };
    check((*here)->add_account("u3", "fresh", true), "u3");
    CHECK((*here)->find_key("fresh")->has_value());
    CHECK((*here)->limits("u3")->gpus_max == 2);
    check((*here)->add_token({"token", "u4", 1, 1000}, true), "u4");
    CHECK((*here)->find_key("token").operator*()->role == Owner::Role::token);

    const auto left = (*here)->keys()->size() - machines_per_account_max - 1;
    auto removed = std::async(std::launch::async, [&] { return (*here)->remove_account(large); });
    while (removed.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready &&
           (*there)->find_key(keys.of[large].front())->has_value()) {
    }
    // From the first step that is heard of.
    if (!(*there)->find_key(keys.of[large].front())->has_value()) CHECK(let_in(**there, keys.of[large]) == 0);
    check(removed.get(), large);
    CHECK((*here)->keys()->size() == left);
    CHECK((*here)->remove_account(large).error().kind == Error::Kind::not_found);
    for (auto& [account, its] : keys.of) CHECK(let_in(**here, its) == static_cast<int64_t>(its.size()));
}

TEST_CASE("an account whose removal broke off is nobody's, and can be removed or replaced again", "[pool]") {
    auto image = open_store_image("");
    REQUIRE(image);
    auto& store = *image->store;
    REQUIRE(store.add_account("alice", "A1", false));
    REQUIRE(store.add_account("bob", "B1", false));
    for (auto* name : {"1", "2", "3"}) REQUIRE(store.put_machine("alice", name, std::string("M") + name));
    REQUIRE(store.put_machine("bob", "trainer", "M4"));
    REQUIRE(store.set_limits("alice", {.gpus_max = 2}));
    REQUIRE(image->remove_part("alice", 2));
    CHECK(let_in(store, {"A1", "M1", "M2", "M3"}) == 0);
    CHECK(let_in(store, {"B1", "M4"}) == 2);
    CHECK(store.keys()->size() == 4);
    CHECK(store.put_machine("alice", "4", "M5").error().kind == Error::Kind::auth);
    CHECK(store.add_account("alice", "A2", false).error().kind == Error::Kind::usage);  // her limits are still there
    SECTION("removed") {
        REQUIRE(store.remove_account("alice"));
        CHECK(store.keys()->size() == 2);
        REQUIRE(store.add_account("alice", "A2", false));
        CHECK_FALSE(store.limits("alice")->gpus_max);
    }
    SECTION("replaced") {
        REQUIRE(store.add_account("alice", "A2", true));
        CHECK(let_in(store, {"A2"}) == 1);
        CHECK(let_in(store, {"M1", "M2", "M3"}) == 0);
        CHECK(store.limits("alice")->gpus_max == 2);
    }
}
