// The accounts of a pool of several nodes: the same database as that of a single one (sqlite_store.cpp), kept in etcd page by
// page. So both follow the same rules, and a change is all or nothing: it is made on a copy, and what has changed is written
// on condition that nobody else was faster; else it is made again on what that one left. Only an account with many machines
// may leave in several such steps.
//
//   accounts/head          how many pages there are
//   accounts/pages/NUMBER  one of them
//
// Each node has a copy in memory, which follows: looking a key up costs no time, and works while etcd is away. Accounts
// change when people come and go; at 200 bytes a key, 10,000 machines are 500 pages.
#include <random>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "api_client/base/turn.hpp"
#include "gpu_server/pool/etcd.hpp"
#include "gpu_server/pool/etcd_follower.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/pool/sqlite_image.hpp"
#include "gpu_server/pool/store.hpp"

namespace tnr::server {
namespace {

constexpr size_t page_bytes = 4096;
constexpr size_t page_digits = 8;
// etcd takes 128 operations in one transaction: a first change, which makes all tables, has some dozens.
constexpr size_t operations_max = 120;
// Two nodes that enroll at the same moment take turns.
constexpr int tries_max = 20;
constexpr http::Limits change_limits{.connect_ms = 1'000, .total_ms = 3'000};
// What is followed is asked for anew after this, when etcd did not answer.
constexpr auto follow_again_after = std::chrono::milliseconds(100);
constexpr int follow_pauses = 3;

const std::string pages_under = "pages/";

using Pages = std::map<size_t, std::string>;

std::string page_name(size_t number) {
    auto digits = std::to_string(number);
    return std::string(page_digits - std::min(digits.size(), page_digits), '0') + digits;
}
std::optional<size_t> page_number(const std::string& name) {
    const bool digits = name.size() == page_digits && name.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::optional(std::stoul(name)) : std::nullopt;
}

Pages pages_of(const std::string& image) {
    Pages pages;
    for (size_t at = 0; at < image.size(); at += page_bytes) pages[at / page_bytes] = image.substr(at, page_bytes);
    return pages;
}

struct Accounts {
    Pages pages;
    size_t count = 0;
    int64_t changed_at = 0;  // the head's revision; 0: there are none yet
    // Empty: there are none yet. What somebody has damaged must not be taken for that: the next change would begin anew.
    Result<std::string> image() const {
        std::string all;
        for (auto& [number, page] : pages)
            if (number < count) all += page;
        if (all.size() == count * page_bytes && (count > 0 || pages.empty())) return all;
        return Error{Error::Kind::internal, "the pool's accounts in etcd are damaged: there are pages that do not fit",
                     "restore etcd from a snapshot: etcdctl snapshot restore"};
    }
};

class EtcdStore : public Store {
public:
    explicit EtcdStore(etcd::Address address) : address_(std::move(address)), root_(address_.prefix + "accounts/") {}
    ~EtcdStore() override {
        stop_.ring();
        if (follower_.joinable()) follower_.join();
    }

    // The first picture; from then on it follows.
    Result<> start() {
        etcd::Client etcd(address_, change_limits);
        auto accounts = load(etcd);
        if (!accounts) return accounts.error();
        if (auto shown = show(*accounts); !shown) return shown;
        follower_ = std::thread([this] { follow(); });
        return Ok{};
    }

    Result<> add_account(const std::string& name, const std::string& public_key, bool replace) override {
        return change([&](Store& store) { return store.add_account(name, public_key, replace); }, replace ? name : "");
    }
    Result<> add_token(const Token& token, bool replace) override {
        return change([&](Store& store) { return store.add_token(token, replace); }, replace ? token.account : "");
    }
    Result<> redeem_token(const std::string& token, const std::string& public_key, int64_t now_ms) override {
        return change([&](Store& store) { return store.redeem_token(token, public_key, now_ms); });
    }
    Result<std::vector<Token>> tokens() override { return now()->tokens(); }
    Result<> put_machine(const std::string& account, const std::string& name, const std::string& public_key) override {
        return change([&](Store& store) { return store.put_machine(account, name, public_key); });
    }
    Result<> remove_account(const std::string& name) override {
        return change([&](Store& store) { return store.remove_account(name); }, name);
    }
    Result<> remove_machine(const std::string& account, const std::string& name) override {
        return change([&](Store& store) { return store.remove_machine(account, name); });
    }
    Result<> set_limits(const std::string& account, const UserLimits& limits) override {
        return change([&](Store& store) { return store.set_limits(account, limits); });
    }
    Result<std::optional<Owner>> find_key(const std::string& public_key) override {
        return now()->find_key(public_key);
    }
    Result<std::vector<KeyRecord>> keys() override { return now()->keys(); }
    Result<UserLimits> limits(const std::string& account) override { return now()->limits(account); }
    Result<> set_price(const std::string& gpu, const std::string& currency, std::optional<int64_t> micros_per_hour,
                       int64_t now_ms, bool clock_is_right) override {
        return change(
            [&](Store& store) { return store.set_price(gpu, currency, micros_per_hour, now_ms, clock_is_right); });
    }
    Result<std::optional<GpuPrice>> price_at(const std::string& gpu, int64_t at_ms) override {
        return now()->price_at(gpu, at_ms);
    }
    Result<std::vector<GpuPrice>> prices(int64_t behind_id, int most) override {
        return now()->prices(behind_id, most);
    }

private:
    std::shared_ptr<Store> now() TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        return now_;
    }

    // `anew`: all of it was asked for; a smaller number than before says that etcd was restored.
    Result<> show(const Accounts& accounts, bool anew = false) TNR_EXCLUDES(mutex_) {
        auto image = accounts.image();
        if (!image) return image.error();
        auto opened = open_store_image(*image);
        if (!opened) return opened.error();
        LockGuard lock(mutex_);
        if (accounts.changed_at < shown_at_ && !anew)
            return Ok{};  // our own change, which the follower has yet to hear of, is newer
        shown_at_ = accounts.changed_at;
        now_ = std::move(opened->store);
        return Ok{};
    }

    void take(Accounts& accounts, const etcd::KeyValue& pair, bool removed) const {
        auto name = pair.key.substr(root_.size());
        if (name == "head") {
            accounts.count = removed ? 0 : std::strtoul(pair.value.c_str(), nullptr, 10);
            accounts.changed_at = pair.mod_revision;
        } else if (name.starts_with(pages_under)) {
            // Servers before this one had claims there, too, of the account called "pages".
            auto number = page_number(name.substr(pages_under.size()));
            if (number && removed)
                accounts.pages.erase(*number);
            else if (number)
                accounts.pages[*number] = pair.value;
        }
    }

    Result<Accounts> load(etcd::Client& etcd) const {
        auto listing = etcd.list(root_);
        if (!listing) return listing.error();
        Accounts accounts;
        for (auto& pair : listing->values) take(accounts, pair, false);
        return accounts;
    }

    using Change = std::function<Result<>(Store&)>;

    // What the accounts would be after a change, and how etcd is told.
    struct Draft {
        Pages pages;
        etcd::Txn txn;
        bool is_all = true;  // false: only a part of what leaves was removed, and the change is yet to be made
        size_t pages_changed() const { return txn.operations.size() - 1; }
        bool fits() const { return txn.operations.size() <= operations_max; }
    };

    Result<Draft> draft(const Accounts& before, const std::function<Result<>(StoreImage&)>& make) const {
        auto image = before.image();
        if (!image) return image.error();
        auto copy = open_store_image(*image);
        if (!copy) return copy.error();
        if (auto made = make(*copy); !made) return made.error();
        Draft after{pages_of(copy->image()), {}};
        after.txn.if_changed_at(root_ + "head", before.changed_at)
            .put(root_ + "head", std::to_string(after.pages.size()));
        for (auto& [number, page] : after.pages)
            if (auto old = before.pages.find(number); old == before.pages.end() || old->second != page)
                after.txn.put(root_ + pages_under + page_name(number), page);
        return after;
    }

    // The change, or as large a part of what leaves with it as etcd takes at once.
    Result<Draft> next_draft(const Accounts& before, const Change& make, const std::string& leaving) const {
        auto whole = draft(before, [&](StoreImage& copy) { return make(*copy.store); });
        if (!whole || whole->fits()) return whole;
        for (int64_t parts = 2; !leaving.empty() && parts <= 2 * machines_per_account_max; parts *= 2) {
            auto part = draft(before, [&](StoreImage& copy) { return copy.remove_part(leaving, parts); });
            if (!part) return part;
            part->is_all = false;
            if (part->fits() && part->pages_changed() > 0) return part;
        }
        return Error{Error::Kind::internal, "this changes more of the accounts than etcd takes at once",
                     "remove machines that are not needed first, one by one: tnr-gpu-server user remove NAME --machine "
                     "MACHINE"};
    }

    // `leaving`: the account whose earlier keys this removes; of a single one, each random key is on a page of its own. Where
    // those are too many, its own key goes in a first change, with which none of the others is worth anything.
    Result<> change(const Change& make, const std::string& leaving = "") TNR_EXCLUDES(changing_, mutex_) {
        TakenTurn one_at_a_time(changing_);
        etcd::Client etcd(address_, change_limits);
        std::minstd_rand dice(std::random_device{}());
        for (int tries = 0; tries < tries_max;) {
            auto before = load(etcd);
            if (!before) return before.error();
            auto next = next_draft(*before, make, leaving);
            if (!next) return next.error();
            auto done = etcd.commit(next->txn);
            if (!done) return done.error();
            if (done->done) {
                const size_t count = next->pages.size();
                auto shown = show({std::move(next->pages), count, done->revision});
                if (!shown || next->is_all) return shown;
                tries = 0;
                continue;
            }
            // Somebody else was faster, and shall not be so every time.
            ++tries;
            std::uniform_int_distribution<int> pause_ms(1, 10 * tries);
            std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms(dice)));
        }
        return Error{Error::Kind::remote, "too many others change the pool's accounts at the same moment", "try again"};
    }

    void follow() {
        etcd::Follower follower(address_, root_, "", {});
        Accounts accounts;
        while (!stop_.rung()) {
            (void)follower.follow(
                [&](int64_t all_as_of, const std::vector<etcd::Event>& events) {
                    const bool all = all_as_of > 0;
                    if (all) accounts = {};
                    for (auto& event : events) take(accounts, event.pair, event.removed);
                    if (auto shown = show(accounts, all); !shown) log(LogLevel::error, shown.error().what);
                    return !stop_.rung();
                },
                {[this] { return stop_.rung(); }, stop_.fd()});
            for (int i = 0; i < follow_pauses && !stop_.rung(); ++i) std::this_thread::sleep_for(follow_again_after);
        }
    }

    const etcd::Address address_;
    const std::string root_;
    Bell stop_;
    Turn changing_;  // changes wait for etcd one after the other; nothing else waits for them
    Mutex mutex_;
    std::shared_ptr<Store> now_ TNR_GUARDED_BY(mutex_);
    int64_t shown_at_ TNR_GUARDED_BY(mutex_) = 0;
    std::thread follower_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_etcd_store(const etcd::Address& address) {
    auto store = std::make_unique<EtcdStore>(address);
    if (auto started = store->start(); !started) return started.error();
    return std::unique_ptr<Store>(std::move(store));
}

}  // namespace tnr::server
