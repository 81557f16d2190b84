// The store of one node: a SQLite file in the state folder.
#include <cmath>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/sqlite.hpp"
#include "gpu_server/pool/store.hpp"

namespace tnr::server {
namespace {

constexpr const char* keys_schema = R"(
    CREATE TABLE IF NOT EXISTS keys (
        public_key TEXT PRIMARY KEY,
        role TEXT NOT NULL CHECK (role IN ('account', 'machine')),
        account TEXT NOT NULL,
        machine TEXT NOT NULL,
        enrolled_ms INTEGER NOT NULL,
        UNIQUE (role, account, machine));
    CREATE TABLE IF NOT EXISTS limits (
        account TEXT PRIMARY KEY,
        gpus_max INTEGER,
        weight_percent INTEGER NOT NULL);
)";

constexpr const char* now_ms_sql = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";

class SqliteStore : public Store {
public:
    explicit SqliteStore(Database database) : database_(std::move(database)) {}

    Result<> add_account(const std::string& name, const std::string& public_key, bool replace) override {
        LockGuard lock(mutex_);
        auto taken = count("SELECT count(*) FROM keys WHERE role = 'account' AND account = ?", {name});
        if (taken > 0 && !replace)
            return Error{Error::Kind::usage, "there is already an account '" + name + "'",
                         "choose another name, or add --replace to make its old key worthless"};
        // One step: nobody shall find the account without a key, nor a machine with one that the new key never gave.
        Transaction together(database_.get());
        auto removed = Statement(database_.get(), "DELETE FROM keys WHERE account = ?", {name}).run("replacing a key");
        if (!removed) return removed;
        if (auto added = put("account", name, "", public_key); !added) return added;
        return together.commit();
    }

    Result<> put_machine(const std::string& account, const std::string& name, const std::string& public_key) override {
        LockGuard lock(mutex_);
        auto others =
            count("SELECT count(*) FROM keys WHERE role = 'machine' AND account = ? AND machine != ?", {account, name});
        if (others >= machines_per_account_max)
            return Error{Error::Kind::usage,
                         "the account '" + account + "' has " + std::to_string(machines_per_account_max) +
                             " machines already, and may not have more",
                         "delete those that are not needed any more: `tnr status` lists them"};
        return put("machine", account, name, public_key);
    }

    Result<> remove_account(const std::string& name) override {
        LockGuard lock(mutex_);
        auto removed =
            Statement(database_.get(), "DELETE FROM keys WHERE account = ?", {name}).run("forgetting an account");
        if (removed && sqlite3_changes(database_.get()) == 0) return no_account(name);
        if (!removed) return removed;
        return Statement(database_.get(), "DELETE FROM limits WHERE account = ?", {name}).run("forgetting an account");
    }

    Result<> set_limits(const std::string& account, const UserLimits& limits) override {
        LockGuard lock(mutex_);
        if (count("SELECT count(*) FROM keys WHERE role = 'account' AND account = ?", {account}) == 0)
            return no_account(account);
        return Statement(database_.get(),
                         "INSERT OR REPLACE INTO limits (account, gpus_max, weight_percent) "
                         "VALUES (?, nullif(?, -1), ?)",
                         {account, int64_t{limits.gpus_max.value_or(-1)}, int64_t{std::llround(limits.weight * 100)}})
            .run("setting limits");
    }

    Result<UserLimits> limits(const std::string& account) override {
        LockGuard lock(mutex_);
        UserLimits limits;
        Statement row(database_.get(), "SELECT gpus_max, weight_percent FROM limits WHERE account = ?", {account});
        if (row.next()) {
            if (!row.is_null(0)) limits.gpus_max = static_cast<int>(row.number(0));
            limits.weight = static_cast<double>(row.number(1)) / 100;
        }
        if (row.failed()) return database_error(database_.get(), "looking up limits");
        return limits;
    }

    Result<> remove_machine(const std::string& account, const std::string& name) override {
        LockGuard lock(mutex_);
        return Statement(database_.get(), "DELETE FROM keys WHERE role = 'machine' AND account = ? AND machine = ?",
                         {account, name})
            .run("forgetting a machine");
    }

    Result<std::optional<Owner>> find_key(const std::string& public_key) override {
        LockGuard lock(mutex_);
        Statement row(database_.get(), "SELECT role, account, machine FROM keys WHERE public_key = ?", {public_key});
        if (!row.next()) {
            if (row.failed()) return database_error(database_.get(), "looking up a key");
            return std::optional<Owner>();
        }
        return std::optional<Owner>(owner(row, 0));
    }

    Result<std::vector<KeyRecord>> keys() override {
        LockGuard lock(mutex_);
        std::vector<KeyRecord> found;
        Statement row(
            database_.get(),
            "SELECT public_key, role, account, machine, enrolled_ms FROM keys ORDER BY account, role, machine", {});
        while (row.next()) found.push_back({row.text(0), owner(row, 1), row.number(4)});
        if (row.failed()) return database_error(database_.get(), "listing the keys");
        return found;
    }

private:
    static Error no_account(const std::string& name) {
        return {Error::Kind::not_found, "there is no account '" + name + "'", "tnr-gpu-server keys lists them"};
    }

    // 0 when it cannot be asked: what follows fails then.
    int64_t count(const char* sql, std::initializer_list<Statement::Value> values) TNR_REQUIRES(mutex_) {
        Statement row(database_.get(), sql, values);
        return row.next() ? row.number(0) : 0;
    }

    Result<> put(const char* role, const std::string& account, const std::string& machine,
                 const std::string& public_key) TNR_REQUIRES(mutex_) {
        // Replaces what the same owner had; a key that belongs to another owner is a conflict on the primary key.
        std::string sql = std::string(
                              "INSERT INTO keys (public_key, role, account, machine, enrolled_ms) "
                              "VALUES (?, ?, ?, ?, ") +
                          now_ms_sql +
                          ") ON CONFLICT (role, account, machine) DO UPDATE SET public_key = excluded.public_key, "
                          "enrolled_ms = excluded.enrolled_ms";
        Statement statement(database_.get(), sql.c_str(), {public_key, std::string(role), account, machine});
        auto done = statement.run("enrolling a key");
        if (statement.conflict())
            return Error{Error::Kind::usage, "this key already belongs to somebody else", "make a new key pair"};
        return done;
    }

    static Owner owner(const Statement& row, int from) {
        auto role = row.text(from) == "account" ? Owner::Role::account : Owner::Role::machine;
        return {role, row.text(from + 1), row.text(from + 2)};
    }

    Mutex mutex_;  // the authentication thread looks keys up, and so does the main thread
    Database database_ TNR_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path) {
    auto opened = open_database(path, keys_schema);
    if (!opened) return opened.error();
    return std::unique_ptr<Store>(std::make_unique<SqliteStore>(std::move(*opened)));
}

}  // namespace tnr::server
