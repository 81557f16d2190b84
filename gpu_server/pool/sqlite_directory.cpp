// Nodes and claims in a SQLite file, for the servers of one machine: the default, where there is one. See directory.hpp.
// Leases are times of this machine's clock since its boot; what another boot left is nobody's. A node that is alone with its
// file (LeaseTimes::alone) renews its lease for the operator's commands only: it lives for as long as its process does.
#include <atomic>
#include <fstream>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/directory_backend.hpp"
#include "gpu_server/pool/sqlite.hpp"

namespace tnr::server {
namespace {

constexpr const char* directory_schema = R"(
    CREATE TABLE IF NOT EXISTS members (name TEXT PRIMARY KEY, identity TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS gpus (uuid TEXT PRIMARY KEY, node TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS nodes (
        name TEXT PRIMARY KEY, entry TEXT NOT NULL, fence INTEGER NOT NULL, boot TEXT NOT NULL, until_ms INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS pool_claims (
        name TEXT PRIMARY KEY, node TEXT NOT NULL, entry TEXT NOT NULL, fence INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS held (uuid TEXT PRIMARY KEY, claim TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS drains (node TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS pool_identity (id TEXT NOT NULL);
    INSERT INTO pool_identity SELECT lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT 1 FROM pool_identity);
    CREATE TABLE IF NOT EXISTS fences (last INTEGER NOT NULL);
    INSERT INTO fences SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM fences);
)";

// How often other processes' changes are looked for.
constexpr std::chrono::milliseconds looked_every{200};

std::string this_boot() {
    std::string id;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
    return id;
}

// Who sees that a lease has ended: nobody; somebody, who leaves it; somebody, who removes what was under it.
enum class Ended { unseen, seen, removed };

// The file, and what both sides do with it. Each method is one transaction; the first that fails is what is told.
class Tables {
public:
    Tables(Database database, Ended ended) : database_(std::move(database)), boot_(this_boot()), ended_(ended) {}

    void run(const char* sql, std::initializer_list<Statement::Value> values) {
        auto done = Statement(database_.get(), sql, values).run("changing the directory of nodes");
        if (!done && !failed_) failed_ = done.error();
    }
    std::string text(const char* sql, std::initializer_list<Statement::Value> values) {
        Statement row(database_.get(), sql, values);
        std::string found = row.next() ? row.text(0) : "";
        if (row.failed() && !failed_) failed_ = database_error(database_.get(), "reading the directory of nodes");
        return found;
    }
    int64_t number(const char* sql, std::initializer_list<Statement::Value> values) {
        auto found = text(sql, values);
        return found.empty() ? 0 : std::stoll(found);
    }
    // Larger than all before.
    int64_t next_fence() {
        run("UPDATE fences SET last = last + 1", {});
        return last_fence();
    }
    int64_t last_fence() { return number("SELECT last FROM fences", {}); }

    // `change` returns false to have nothing changed.
    Result<> together(const std::function<Result<>()>& change) {
        failed_.reset();
        Transaction all(database_.get());
        if (auto begun = all.begun(); !begun) return begun.error();
        forget_dead();
        auto done = change();
        if (!done) return done;
        if (failed_) return *failed_;
        return all.commit();
    }

    // Rows of name, text and fence.
    std::vector<Entry> entries(const std::string& kind, const char* sql,
                               std::initializer_list<Statement::Value> values = {}) {
        std::vector<Entry> found;
        Statement rows(database_.get(), sql, values);
        while (rows.next()) found.push_back({kind + rows.text(0), rows.text(1), rows.number(2)});
        return found;
    }
    Change nodes_and_drains() {
        Change all{true, living()};
        for (auto& one : all.entries) one.name = "nodes/" + one.name;
        for (auto& one : entries("drains/", "SELECT node, '', 0 FROM drains")) all.entries.push_back(std::move(one));
        return all;
    }
    std::vector<Entry> claims() {
        return entries("claims/",
                       "SELECT name, entry, fence FROM pool_claims WHERE node IN "
                       "(SELECT name FROM nodes WHERE until_ms > ? AND boot = ?)",
                       {now(), boot_});
    }
    std::vector<Entry> living() {
        return entries("", "SELECT name, entry, fence FROM nodes WHERE until_ms > ? AND boot = ?", {now(), boot_});
    }
    bool lives(const std::string& node) {
        return number("SELECT count(*) FROM nodes WHERE name = ? AND until_ms > ? AND boot = ?", {node, now(), boot_}) >
               0;
    }
    std::vector<Entry> free() {
        std::vector<Entry> found;
        for (auto& entry : living()) {
            auto node = node_from_text(*entry.text);
            if (!node) continue;
            for (auto& [type, count] : node->types)
                found.push_back({"free/" + type + "/" + node->name, to_text(count), entry.fence});
        }
        return found;
    }
    // Another number: something has changed since, or a lease has ended.
    std::string state() {
        forget_dead();
        return text(
            "SELECT (SELECT last FROM fences) || ' ' || (SELECT count(*) FROM nodes) || ' ' || "
            "(SELECT count(*) FROM pool_claims)",
            {});
    }
    const std::string& boot() const { return boot_; }
    sqlite3* get() { return database_.get(); }

private:
    // Leases that end after this are good.
    int64_t now() const { return ended_ == Ended::unseen ? 0 : boot_ms(); }
    void forget_dead() {
        if (ended_ != Ended::removed) return;
        if (number("SELECT count(*) FROM nodes WHERE until_ms <= ? OR boot != ?", {boot_ms(), boot_}) == 0) return;
        run("DELETE FROM nodes WHERE until_ms <= ? OR boot != ?", {boot_ms(), boot_});
        run("DELETE FROM held WHERE claim IN (SELECT name FROM pool_claims WHERE node NOT IN (SELECT name FROM nodes))",
            {});
        run("DELETE FROM pool_claims WHERE node NOT IN (SELECT name FROM nodes)", {});
    }

    Database database_;
    std::string boot_;
    const Ended ended_;
    std::optional<Error> failed_;
};

class SqliteBackend : public Backend {
public:
    SqliteBackend(Database database, LeaseTimes times)
        : times_(times), tables_(std::move(database), times.alone ? Ended::unseen : Ended::removed) {}

    Result<Registration> join(const PoolNode& self, const std::vector<PoolClaim>& claims) override {
        LockGuard lock(mutex_);
        Registration made;
        auto done = tables_.together([&]() TNR_REQUIRES(mutex_) -> Result<> {
            auto identity = tables_.text("SELECT identity FROM members WHERE name = ?", {self.name});
            if (!identity.empty() && identity != self.identity)
                return Error{
                    Error::Kind::usage, "the pool has another node called '" + self.name + "'",
                    "choose another name: --node NAME; if that node is gone for good: tnr-gpu-server remove-node " +
                        self.name};
            if (times_.alone)  // others that are there have died, and cannot come back while we have the file
                for (auto* sql : {"DELETE FROM nodes", "DELETE FROM held", "DELETE FROM pool_claims"})
                    tables_.run(sql, {});
            made.fence = fence_ = tables_.next_fence();
            made.pool = tables_.text("SELECT id FROM pool_identity", {});
            name_ = self.name;
            tables_.run("INSERT OR REPLACE INTO members VALUES (?, ?)", {self.name, self.identity});
            tables_.run("DELETE FROM held WHERE claim IN (SELECT name FROM pool_claims WHERE node = ?)", {self.name});
            tables_.run("DELETE FROM pool_claims WHERE node = ?", {self.name});
            tables_.run("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?)",
                        {self.name, to_text(self), made.fence, tables_.boot(), boot_ms() + times_.ttl_s * 1000});
            for (auto& uuid : self.gpus) {
                tables_.run("INSERT OR IGNORE INTO gpus VALUES (?, ?)", {uuid, self.name});
                if (tables_.text("SELECT node FROM gpus WHERE uuid = ?", {uuid}) != self.name)
                    made.refused.push_back(uuid);
            }
            for (auto& claim : claims) put(claim, made.fence);
            return Ok{};
        });
        if (!done) return done.error();
        return made;
    }

    // The registration's number is all there is to it.
    void go_on(const PoolNode& self, const std::string&, const Registration& registration) override {
        LockGuard lock(mutex_);
        name_ = self.name;
        fence_ = registration.fence;
    }
    std::string lease() const override { return {}; }

    Result<bool> renew() override {
        LockGuard lock(mutex_);
        bool there = false;
        auto done = tables_.together([&]() TNR_REQUIRES(mutex_) -> Result<> {
            there = registered(fence_);
            if (there)
                tables_.run("UPDATE nodes SET until_ms = ? WHERE name = ?", {boot_ms() + times_.ttl_s * 1000, name_});
            return Ok{};
        });
        if (!done) return done.error();
        return there;
    }

    Result<Adopted> adopt(const PoolNode& self, int64_t fence, const std::vector<std::string>& refused) override {
        LockGuard lock(mutex_);
        Adopted adopted;
        auto done = tables_.together([&]() TNR_REQUIRES(mutex_) -> Result<> {
            const bool there = registered(fence);
            for (auto& uuid : refused) {
                if (there) tables_.run("INSERT OR IGNORE INTO gpus VALUES (?, ?)", {uuid, self.name});
                if (tables_.text("SELECT node FROM gpus WHERE uuid = ?", {uuid}) != self.name)
                    adopted.refused.push_back(uuid);
            }
            if (adopted.refused.size() < refused.size()) adopted.fence = tables_.next_fence();
            return Ok{};
        });
        if (!done) return done.error();
        return adopted;
    }

    Result<bool> tell_free(const PoolNode& self, int64_t fence) override { return tell_node(self, fence); }

    Result<bool> tell_node(const PoolNode& self, int64_t fence) override {
        LockGuard lock(mutex_);
        bool there = false;
        auto done = tables_.together([&]() TNR_REQUIRES(mutex_) -> Result<> {
            there = tell(self, fence);
            tables_.next_fence();
            return Ok{};
        });
        if (!done) return done.error();
        return there;
    }

    Result<Added> add(const PoolClaim& claim, int64_t fence, const PoolNode* telling,
                      std::optional<int64_t> none_since) override {
        LockGuard lock(mutex_);
        Added added;
        auto done = tables_.together([&]() TNR_REQUIRES(mutex_) -> Result<> {
            added.claims = {tables_.claims(), tables_.last_fence()};
            for (auto& entry : added.claims.entries) {
                auto other = claim_from_text(*entry.text);
                if (other && none_since && other->account == claim.account && entry.fence > *none_since) return Ok{};
            }
            bool free = registered(fence);
            for (auto& uuid : claim.devices)
                free = free && tables_.text("SELECT node FROM gpus WHERE uuid = ?", {uuid}) == claim.node &&
                       tables_.text("SELECT claim FROM held WHERE uuid = ?", {uuid}).empty();
            if (!free)
                return Error{
                    Error::Kind::remote,
                    "the pool does not let this node have the GPU now: it was taken for dead, or another claim is "
                    "on the GPU",
                    "try again in some seconds"};
            added.fence = tables_.next_fence();
            put(claim, added.fence);
            if (telling) tell(*telling, fence);
            added.claims = {tables_.claims(), added.fence};
            return Ok{};
        });
        if (!done) return done.error();
        return added;
    }

    Result<bool> remove(const PoolClaim& claim, int64_t fence, const PoolNode* telling) override {
        LockGuard lock(mutex_);
        auto name = claim_name(claim.node, claim.id);
        bool told = false;
        auto done = tables_.together([&]() TNR_REQUIRES(mutex_) -> Result<> {
            tables_.run("DELETE FROM pool_claims WHERE name = ?", {name});
            tables_.run("DELETE FROM held WHERE claim = ?", {name});
            told = telling && tell(*telling, fence);
            tables_.next_fence();
            return Ok{};
        });
        if (!done) return done.error();
        return told;
    }

    // They are few, on one machine.
    Result<Found> look(const Question&, const std::string&) override {
        LockGuard lock(mutex_);
        Found found{{}, tables_.last_fence()};  // before: what comes in between is newer
        found.entries = tables_.claims();
        for (auto& one : tables_.free()) found.entries.push_back(std::move(one));
        return found;
    }

    Result<std::vector<Entry>> claims_of(const std::string& node) override {
        LockGuard lock(mutex_);
        return tables_.entries("claims/", "SELECT name, entry, fence FROM pool_claims WHERE node = ?", {node});
    }

    Result<> follow(const std::function<bool(const Change&)>& told, const StopAsked& stopped) override {
        for (std::string known; !stopped(); std::this_thread::sleep_for(looked_every)) {
            Change all;
            {
                LockGuard lock(mutex_);
                if (std::exchange(known, tables_.state()) == known) continue;
                all = tables_.nodes_and_drains();
            }
            if (!told(all)) return Ok{};
        }
        return Ok{};
    }

    void leave(const PoolNode& self) override {
        LockGuard lock(mutex_);
        (void)tables_.together([&]() TNR_REQUIRES(mutex_) -> Result<> {
            tables_.run("DELETE FROM gpus WHERE node = ?", {self.name});
            tables_.run("UPDATE nodes SET until_ms = 0 WHERE name = ?", {self.name});
            tables_.next_fence();
            return Ok{};
        });
    }

private:
    bool registered(int64_t fence) TNR_REQUIRES(mutex_) {
        return tables_.number("SELECT fence FROM nodes WHERE name = ?", {name_}) == fence && fence > 0;
    }
    bool tell(const PoolNode& self, int64_t fence) TNR_REQUIRES(mutex_) {
        if (!registered(fence)) return false;
        tables_.run("UPDATE nodes SET entry = ? WHERE name = ?", {to_text(self), self.name});
        return true;
    }
    void put(const PoolClaim& claim, int64_t fence) TNR_REQUIRES(mutex_) {
        auto name = claim_name(claim.node, claim.id);
        tables_.run("INSERT OR REPLACE INTO pool_claims VALUES (?, ?, ?, ?)",
                    {name, claim.node, to_text(claim), fence});
        for (auto& uuid : claim.devices) tables_.run("INSERT OR REPLACE INTO held VALUES (?, ?)", {uuid, name});
    }

    const LeaseTimes times_;
    Mutex mutex_;
    Tables tables_ TNR_GUARDED_BY(mutex_);
    std::string name_ TNR_GUARDED_BY(mutex_);
    int64_t fence_ TNR_GUARDED_BY(mutex_) = 0;
};

class SqliteAdmin : public NodeAdmin {
public:
    explicit SqliteAdmin(Database database) : tables_(std::move(database), Ended::seen) {}

    Result<View> view() override {
        View view;
        std::map<std::string, bool> drains;
        apply(tables_.nodes_and_drains(), view.nodes, view.claims, drains);
        for (auto& told : {tables_.free(), tables_.claims()}) apply({false, told}, view.nodes, view.claims, drains);
        Statement members(tables_.get(), "SELECT name FROM members", {});
        while (members.next()) {
            auto& node = view.nodes[members.text(0)];
            node.name = members.text(0);
            node.draining = drains.count(node.name) > 0;
        }
        return view;
    }

    Result<> drain(const std::string& node, bool on) override {
        return tables_.together([&]() -> Result<> {
            if (tables_.text("SELECT name FROM members WHERE name = ?", {node}).empty()) return no_such_node(node);
            tables_.run(on ? "INSERT OR IGNORE INTO drains VALUES (?)" : "DELETE FROM drains WHERE node = ?", {node});
            tables_.next_fence();
            return Ok{};
        });
    }

    Result<> remove(const std::string& node) override {
        return tables_.together([&]() -> Result<> {
            if (tables_.lives(node))
                return Error{Error::Kind::usage, "the node '" + node + "' is there, and serves", "stop it first"};
            if (tables_.text("SELECT name FROM members WHERE name = ?", {node}).empty()) return no_such_node(node);
            for (const char* sql : {"DELETE FROM members WHERE name = ?", "DELETE FROM nodes WHERE name = ?",
                                    "DELETE FROM drains WHERE node = ?", "DELETE FROM gpus WHERE node = ?"})
                tables_.run(sql, {node});
            return Ok{};
        });
    }

private:
    Tables tables_;
};

}  // namespace

Result<std::unique_ptr<Directory>> open_sqlite_directory(const std::string& path, Post post, LeaseTimes times) {
    auto opened = open_database(path, directory_schema);
    if (!opened) return opened.error();
    return make_directory(std::make_unique<SqliteBackend>(std::move(*opened), times), std::move(post), times);
}

Result<std::unique_ptr<NodeAdmin>> open_sqlite_admin(const std::string& path) {
    auto opened = open_database(path, directory_schema);
    if (!opened) return opened.error();
    return std::unique_ptr<NodeAdmin>(std::make_unique<SqliteAdmin>(std::move(*opened)));
}

}  // namespace tnr::server
