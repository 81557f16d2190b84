// The ledger of one node: a table of the SQLite file in the state folder.
#include <sys/stat.h>

#include <optional>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/pool/sqlite.hpp"

namespace tnr::server {
namespace {

// Of claims only what every version had; the rest is added below. ended_ms is empty while a claim lasts, until_ms is how
// far it is known to have lasted.
constexpr const char* ledger_schema = R"(
    CREATE TABLE IF NOT EXISTS claims (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        account TEXT NOT NULL,
        machine TEXT NOT NULL,
        gpu TEXT NOT NULL,
        devices TEXT NOT NULL,
        began_ms INTEGER NOT NULL,
        ended_ms INTEGER,
        reason TEXT NOT NULL DEFAULT '');
    CREATE INDEX IF NOT EXISTS open_claims ON claims (id) WHERE ended_ms IS NULL;
)";

// Earlier servers kept the time until which all open claims were in use in the table `alive`. It stays: one may
// still be running when another command updates the file.
constexpr const char* to_version_1 = R"(
    ALTER TABLE claims ADD COLUMN node TEXT NOT NULL DEFAULT '';
    ALTER TABLE claims ADD COLUMN until_ms INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE claims ADD COLUMN bytes_up INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE claims ADD COLUMN bytes_down INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE claims ADD COLUMN wiped_bytes INTEGER;
    CREATE TABLE IF NOT EXISTS alive (one INTEGER PRIMARY KEY CHECK (one = 1), at_ms INTEGER NOT NULL);
    UPDATE claims SET until_ms = max(began_ms, coalesce(ended_ms, (SELECT at_ms FROM alive), 0));
    CREATE INDEX claims_by_account ON claims (account, until_ms, id);
    PRAGMA user_version = 1;
)";
constexpr const char* to_version_2 = R"(
    ALTER TABLE claims ADD COLUMN busy_ms INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE claims ADD COLUMN wipe_checked_bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE claims ADD COLUMN wipe_ms INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX claims_by_end ON claims (until_ms);
    PRAGMA user_version = 2;
)";

// How long somebody else's lock is waited for. A claim's line is written on the supervisor's one thread, for which everybody
// waits. What is refused here is noted a second later; a claim that could not begin would be refused, so that waits as
// everybody does (busy_timeout_ms).
constexpr int note_busy_timeout_ms = 200;

constexpr const char* claim_columns =
    "id, account, machine, gpu, devices, node, began_ms, until_ms, bytes_up, bytes_down, ended_ms IS NOT NULL, reason, "
    "wiped_bytes, busy_ms, wipe_checked_bytes, wipe_ms";

// What the database has beside its file, for as long as anybody has it open: what was written last. SQLite does not notice that
// it goes, and others make a new one, which neither side ever hears of.
class WrittenLast {
public:
    explicit WrittenLast(const std::string& path) : path_(path + "-wal"), file_(now_there()) {}
    bool has_moved() const { return file_ && now_there() != file_; }

private:
    using File = std::pair<dev_t, ino_t>;
    std::optional<File> now_there() const {
        struct stat is {};
        if (stat(path_.c_str(), &is) != 0) return std::nullopt;
        return File{is.st_dev, is.st_ino};
    }
    std::string path_;
    std::optional<File> file_;
};

// Nobody would find in the file what is written now: a claim that begins would never be on a bill.
Result<> check_is_there(sqlite3* database, const WrittenLast& written_last) {
    if (has_moved(database))
        return Error{Error::Kind::internal,
                     "the server's database was removed or replaced while it runs, so what is used cannot be noted",
                     "the pool's operator has to put pool.db back, or to stop the server and restore a backup"};
    if (written_last.has_moved())
        return Error{Error::Kind::internal,
                     "a part of the server's database, pool.db-wal, was removed or replaced while it runs, so what is "
                     "used cannot be noted",
                     "the pool's operator has to put it back, or to stop the server, which puts what it has into "
                     "pool.db, and to start it again"};
    return Ok{};
}

// Two processes may come to it at once: the second finds it done.
Result<> bring_up_to_date(sqlite3* database, const std::string& path) {
    auto version = version_of(database, sqlite_ledger_version, path);
    if (!version) return version.error();
    if (*version == sqlite_ledger_version) return Ok{};
    Transaction together(database);
    if (auto begun = together.begun(); !begun) return begun.error();
    if (version = version_of(database, sqlite_ledger_version, path); !version) return version.error();
    int64_t becomes = 0;
    for (const char* step : {to_version_1, to_version_2})
        if (*version < ++becomes && sqlite3_exec(database, step, nullptr, nullptr, nullptr) != SQLITE_OK)
            return database_error(database, "updating " + path);
    return together.commit();
}

class SqliteLedger : public Ledger {
public:
    SqliteLedger(Database database, Database syncing, WrittenLast written_last)
        : database_(std::move(database)), syncing_(std::move(syncing)), written_last_(std::move(written_last)) {}

    Result<int64_t> begin(const ClaimRecord& claim) override {
        LockGuard lock(mutex_);
        if (auto ready = to_change(busy_timeout_ms); !ready) return ready.error();
        auto begun = Statement(database_.get(),
                               "INSERT INTO claims (account, machine, gpu, devices, node, began_ms, until_ms) "
                               "VALUES (?, ?, ?, ?, ?, ?, ?)",
                               {claim.account, claim.machine, claim.gpu, claim.devices, claim.node, claim.began_ms,
                                claim.until_ms()})
                         .run("noting a claim");
        if (!begun) return begun.error();
        return int64_t{sqlite3_last_insert_rowid(database_.get())};
    }

    Result<> note(const std::vector<ClaimNews>& news) override {
        LockGuard lock(mutex_);
        if (auto ready = to_change(note_busy_timeout_ms); !ready) return ready;
        Transaction together(database_.get());
        if (auto begun = together.begun(); !begun) return begun.error();
        for (const auto& each : news)
            if (auto noted = note_one(each); !noted) return noted;
        return together.commit();
    }

    Result<> note_wiped(int64_t id, const WipeRecord& wipe) override {
        LockGuard lock(mutex_);
        if (auto ready = to_change(note_busy_timeout_ms); !ready) return ready;
        return Statement(database_.get(),
                         "UPDATE claims SET wiped_bytes = coalesce(wiped_bytes, 0) + ?, "
                         "wipe_checked_bytes = wipe_checked_bytes + ?, wipe_ms = wipe_ms + ? WHERE id = ?",
                         {wipe.bytes, wipe.checked_bytes, wipe.took_ms, id})
            .run("noting a wipe");
    }

    Result<std::vector<ClaimRecord>> close_open(const std::string& reason, const std::set<int64_t>& go_on) override {
        LockGuard lock(mutex_);
        auto added =
            Statement(database_.get(),
                      "UPDATE claims SET until_ms = max(began_ms, coalesce(ended_ms, 0)) WHERE until_ms = 0", {})
                .run("completing what an older server noted");
        if (!added) return added.error();
        std::string others;  // numbers: nothing foreign gets into the statement
        for (auto id : go_on) others += (others.empty() ? "" : ",") + std::to_string(id);
        Statement row(database_.get(),
                      ("UPDATE claims SET reason = ?, ended_ms = until_ms WHERE ended_ms IS NULL AND id NOT IN (" +
                       others + ") RETURNING " + claim_columns)
                          .c_str(),
                      {reason});
        return claims(row);
    }

    Result<std::vector<ClaimRecord>> claims_of(const std::optional<std::string>& account, const LedgerPlace& behind,
                                               int most) override {
        LockGuard lock(mutex_);
        Statement row(
            database_.get(),
            std::string("SELECT ")
                .append(claim_columns)
                .append(" FROM claims WHERE ")
                .append(account ? "account = ?" : "? IS NULL")
                .append(" AND (until_ms, id) > (?, ?) ORDER BY until_ms, id LIMIT ?")
                .c_str(),
            {account ? Statement::Value(*account) : std::monostate(), behind.until_ms, behind.id, int64_t{most}});
        return claims(row);
    }

    // By a connection of its own, so that nobody waits for the disk meanwhile.
    Result<> sync() override {
        LockGuard lock(syncing_mutex_);
        if (auto there = check_is_there(syncing_.get(), written_last_); !there) return there;
        return make_durable(syncing_.get(), "making the ledger durable");
    }

private:
    // Before each change: whether it would be found again, and how long it may wait for somebody else's lock.
    Result<> to_change(int wait_ms) TNR_REQUIRES(mutex_) {
        sqlite3_busy_timeout(database_.get(), wait_ms);
        return check_is_there(database_.get(), written_last_);
    }
    Result<> note_one(const ClaimNews& news) TNR_REQUIRES(mutex_) {
        auto progress =
            Statement(database_.get(),
                      "UPDATE claims SET until_ms = began_ms + ?, bytes_up = ?, bytes_down = ?, "
                      "busy_ms = ? WHERE id = ? AND ended_ms IS NULL",
                      {news.use.lasted_ms, news.use.bytes_up, news.use.bytes_down, news.use.busy_ms, news.id})
                .run("noting a claim's use");
        if (!progress || !news.ended) return progress;
        return Statement(database_.get(),
                         "UPDATE claims SET ended_ms = until_ms, reason = ? WHERE id = ? AND ended_ms IS NULL",
                         {*news.ended, news.id})
            .run("noting a claim's end");
    }

    Result<std::vector<ClaimRecord>> claims(Statement& row) TNR_REQUIRES(mutex_) {
        std::vector<ClaimRecord> found;
        while (row.next()) {
            ClaimRecord claim{row.number(0), row.text(1), row.text(2),  row.text(3),
                              row.text(4),   row.text(5), row.number(6)};
            claim.use = {row.number(7) - claim.began_ms, row.number(8), row.number(9), row.number(13)};
            claim.ended = row.number(10) != 0;
            claim.reason = row.text(11);
            if (!row.is_null(12)) claim.wipe = WipeRecord{row.number(12), row.number(14), row.number(15)};
            found.push_back(std::move(claim));
        }
        if (row.failed()) return database_error(database_.get(), "reading the ledger");
        return found;
    }

    Mutex mutex_;
    Database database_ TNR_GUARDED_BY(mutex_);
    Mutex syncing_mutex_;
    Database syncing_ TNR_GUARDED_BY(syncing_mutex_);
    const WrittenLast written_last_;
};

}  // namespace

Result<std::unique_ptr<Ledger>> open_sqlite_ledger(const std::string& path) {
    auto opened = open_database(path, ledger_schema);
    if (!opened) return opened.error();
    if (auto current = bring_up_to_date(opened->get(), path); !current) return current.error();
    auto syncing = open_database(path, ledger_schema);
    if (!syncing) return syncing.error();
    return std::unique_ptr<Ledger>(
        std::make_unique<SqliteLedger>(std::move(*opened), std::move(*syncing), WrittenLast(path)));
}

Result<> check_sqlite_ledger(const std::string& path) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE, nullptr);
    Database database(opened);
    if (code != SQLITE_OK)
        return Error{Error::Kind::internal, "cannot open " + path + ": " + sqlite3_errstr(code), database_hint(opened)};
    sqlite3_busy_timeout(opened, busy_timeout_ms);
    if (sqlite3_exec(opened, "SELECT * FROM claims ORDER BY id DESC LIMIT 1", nullptr, nullptr, nullptr) != SQLITE_OK)
        return database_error(opened, "reading " + path);
    if (sqlite3_exec(opened, "BEGIN IMMEDIATE; ROLLBACK", nullptr, nullptr, nullptr) != SQLITE_OK)
        return database_error(opened, "writing " + path);
    auto version = version_of(opened, sqlite_ledger_version, path);
    if (!version) return version.error();
    return Ok{};
}

}  // namespace tnr::server
