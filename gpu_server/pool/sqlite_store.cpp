// The store of one node: a SQLite file in the state folder.
#include <cmath>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/sqlite.hpp"
#include "gpu_server/pool/sqlite_image.hpp"
#include "gpu_server/pool/sqlite_prices.hpp"
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
    CREATE TABLE IF NOT EXISTS tokens (
        public_key TEXT PRIMARY KEY,
        account TEXT NOT NULL,
        issued_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        used_ms INTEGER NOT NULL,
        used_for TEXT NOT NULL);
)";

// What a folder of before lacks: table, column, its type. Each has a default: a node of an older build, in the same pool,
// goes on to write rows without it. So the statements here name their columns, and a change of a row keeps the others.
constexpr const char* later_columns[][3] = {{"limits", "priority", "INTEGER NOT NULL DEFAULT 0"},
                                            {"limits", "operator", "INTEGER NOT NULL DEFAULT 0"},
                                            {"limits", "device_memory_max", "INTEGER"}};

// What came after the first version.
Result<> prepare(sqlite3* database) {
    if (sqlite3_exec(database, prices_schema, nullptr, nullptr, nullptr) != SQLITE_OK)
        return database_error(database, "preparing the prices");
    Transaction together(database);  // several processes may open it at once
    if (auto begun = together.begun(); !begun) return begun.error();
    for (auto& [table, column, type] : later_columns) {
        Statement there(database, "SELECT count(*) FROM pragma_table_info(?) WHERE name = ?",
                        {std::string(table), std::string(column)});
        if (there.next() && there.number(0) > 0) continue;
        std::string sql = std::string("ALTER TABLE ") + table + " ADD COLUMN " + column + " " + type;
        if (auto added = Statement(database, sql.c_str(), {}).run("bringing the store up to date"); !added)
            return added;
    }
    return together.commit();
}

constexpr const char* now_ms_sql = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";

class SqliteStore : public Store {
public:
    explicit SqliteStore(Database database) : database_(std::move(database)) {}

    Result<> add_account(const std::string& name, const std::string& public_key, bool replace) override {
        LockGuard lock(mutex_);
        // One step: nobody shall find the account without a key, nor a machine with one that the new key never gave.
        Transaction together(database_.get());
        if (auto begun = together.begun(); !begun) return begun.error();
        if (auto room = make_room(name, replace); !room) return room;
        if (auto added = put("account", name, "", public_key); !added) return added;
        return together.commit();
    }

    Result<> add_token(const Token& token, bool replace) override {
        LockGuard lock(mutex_);
        Transaction together(database_.get());
        if (auto begun = together.begun(); !begun) return begun.error();
        if (auto room = make_room(token.account, replace); !room) return room;
        auto old = Statement(database_.get(), "DELETE FROM tokens WHERE max(expires_ms, used_ms) < ?",
                             {token.issued_ms - tokens_remembered_ms})
                       .run("forgetting old tokens");
        if (!old) return old;
        auto added = Statement(database_.get(),
                               "INSERT INTO tokens (public_key, account, issued_ms, expires_ms, used_ms, used_for) "
                               "VALUES (?, ?, ?, ?, 0, '')",
                               {token.public_key, token.account, token.issued_ms, token.expires_ms})
                         .run("storing a token");
        if (!added) return added;
        return together.commit();
    }

    Result<> redeem_token(const std::string& token, const std::string& public_key, int64_t now_ms) override {
        LockGuard lock(mutex_);
        Transaction together(database_.get());
        if (auto begun = together.begun(); !begun) return begun.error();
        auto found = select_tokens("WHERE public_key = ?", {token});
        if (!found) return found.error();
        if (found->empty()) return Error{Error::Kind::auth, "this token is not known", ask_for_another};
        auto& its = found->front();
        if (its.used_ms != 0 &&
            count("SELECT count(*) FROM tokens JOIN keys ON used_for = keys.public_key WHERE tokens.public_key = ? "
                  "AND used_for = ? AND role = 'account' AND keys.account = tokens.account",
                  {token, public_key}) > 0)
            return Ok{};
        if (its.used_ms != 0) return Error{Error::Kind::auth, "this token has been used already", ask_for_another};
        if (!its.open(now_ms)) return Error{Error::Kind::auth, "this token is too old", ask_for_another};
        if (auto added = put("account", its.account, "", public_key); !added) return added;
        auto used = Statement(database_.get(), "UPDATE tokens SET used_ms = ?, used_for = ? WHERE public_key = ?",
                              {now_ms, public_key, token})
                        .run("using a token");
        if (!used) return used;
        return together.commit();
    }

    Result<std::vector<Token>> tokens() override {
        LockGuard lock(mutex_);
        return select_tokens("ORDER BY account", {});
    }

    Result<> put_machine(const std::string& account, const std::string& name, const std::string& public_key) override {
        LockGuard lock(mutex_);
        Transaction together(database_.get());
        if (auto begun = together.begun(); !begun) return begun.error();
        if (count("SELECT count(*) FROM keys WHERE role = 'account' AND account = ?", {account}) == 0)
            return Error{Error::Kind::auth, "the account '" + account + "' has no key any more",
                         "ask the pool's operator for another: tnr-gpu-server user add NAME"};
        auto others =
            count("SELECT count(*) FROM keys WHERE role = 'machine' AND account = ? AND machine != ?", {account, name});
        if (others >= machines_per_account_max)
            return Error{Error::Kind::usage,
                         "the account '" + account + "' has " + std::to_string(machines_per_account_max) +
                             " machines already, and may not have more",
                         "delete those that are not needed any more: `tnr status` lists them"};
        if (auto added = put("machine", account, name, public_key); !added) return added;
        return together.commit();
    }

    Result<> remove_account(const std::string& name) override {
        LockGuard lock(mutex_);
        Transaction together(database_.get());
        if (auto begun = together.begun(); !begun) return begun.error();
        if (!exists(name)) return no_account(name);
        if (auto removed = remove_rows({"keys", "limits", "tokens"}, name); !removed) return removed;
        return together.commit();
    }

    // See StoreImage.
    Result<> remove_part(const std::string& account, int64_t parts) {
        LockGuard lock(mutex_);
        Transaction together(database_.get());
        if (auto begun = together.begun(); !begun) return begun.error();
        auto key = Statement(database_.get(), "DELETE FROM keys WHERE role = 'account' AND account = ?", {account})
                       .run("forgetting an account's key");
        if (!key) return key;
        if (auto removed = remove_rows({"tokens"}, account); !removed) return removed;
        auto machines = count("SELECT count(*) FROM keys WHERE role = 'machine' AND account = ?", {account});
        // Those that came one after the other share pages.
        auto removed = Statement(database_.get(),
                                 "DELETE FROM keys WHERE rowid IN (SELECT rowid FROM keys WHERE role = 'machine' AND "
                                 "account = ? ORDER BY rowid LIMIT ?)",
                                 {account, machines / parts})
                           .run("forgetting machines");
        if (!removed) return removed;
        return together.commit();
    }

    Result<> set_limits(const std::string& account, const UserLimits& limits) override {
        LockGuard lock(mutex_);
        if (!exists(account)) return no_account(account);
        return Statement(
                   database_.get(),
                   "INSERT INTO limits (account, gpus_max, weight_percent, priority, operator, device_memory_max) "
                   "VALUES (?, nullif(?, -1), ?, ?, ?, nullif(?, -1)) ON CONFLICT (account) DO UPDATE SET "
                   "gpus_max = excluded.gpus_max, weight_percent = excluded.weight_percent, "
                   "priority = excluded.priority, operator = excluded.operator, "
                   "device_memory_max = excluded.device_memory_max",
                   {account, int64_t{limits.gpus_max.value_or(-1)}, int64_t{std::llround(limits.weight * 100)},
                    int64_t{limits.priority}, int64_t{limits.is_operator},
                    limits.device_memory_max ? static_cast<int64_t>(*limits.device_memory_max) : -1})
            .run("setting limits");
    }

    Result<UserLimits> limits(const std::string& account) override {
        LockGuard lock(mutex_);
        UserLimits limits;
        Statement row(
            database_.get(),
            "SELECT gpus_max, weight_percent, priority, operator, device_memory_max FROM limits WHERE account = ?",
            {account});
        if (row.next()) {
            if (!row.is_null(0)) limits.gpus_max = static_cast<int>(row.number(0));
            limits.weight = static_cast<double>(row.number(1)) / 100;
            limits.priority = static_cast<int>(row.number(2));
            limits.is_operator = row.number(3) != 0;
            if (!row.is_null(4)) limits.device_memory_max = static_cast<uint64_t>(row.number(4));
        }
        if (row.failed()) return database_error(database_.get(), "looking up limits");
        return limits;
    }

    Result<> set_price(const std::string& gpu, const std::string& currency, std::optional<int64_t> micros_per_hour,
                       int64_t now_ms, bool clock_is_right) override {
        LockGuard lock(mutex_);
        return set_price_in(database_.get(), gpu, currency, micros_per_hour, now_ms, clock_is_right);
    }
    Result<std::optional<GpuPrice>> price_at(const std::string& gpu, int64_t at_ms) override {
        LockGuard lock(mutex_);
        return price_in(database_.get(), gpu, at_ms);
    }
    Result<std::vector<GpuPrice>> prices(int64_t behind_id, int most) override {
        LockGuard lock(mutex_);
        return prices_in(database_.get(), behind_id, most);
    }

    Result<> remove_machine(const std::string& account, const std::string& name) override {
        LockGuard lock(mutex_);
        return Statement(database_.get(), "DELETE FROM keys WHERE role = 'machine' AND account = ? AND machine = ?",
                         {account, name})
            .run("forgetting a machine");
    }

    Result<std::optional<Owner>> find_key(const std::string& public_key) override {
        LockGuard lock(mutex_);
        Statement row(database_.get(),
                      "SELECT role, keys.account, machine, role = 'account' AND coalesce(operator, 0) FROM keys "
                      "LEFT JOIN limits ON limits.account = keys.account WHERE public_key = ? AND EXISTS "
                      "(SELECT 1 FROM keys AS own WHERE own.role = 'account' AND own.account = keys.account) "
                      "UNION ALL SELECT 'token', account, '', 0 FROM tokens WHERE public_key = ?",
                      {public_key, public_key});
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
            "SELECT public_key, role, keys.account, machine, role = 'account' AND coalesce(operator, 0), enrolled_ms "
            "FROM keys LEFT JOIN limits ON limits.account = keys.account ORDER BY keys.account, role, machine",
            {});
        while (row.next()) found.push_back({row.text(0), owner(row, 1), row.number(5)});
        if (row.failed()) return database_error(database_.get(), "listing the keys");
        return found;
    }

private:
    static Error no_account(const std::string& name) {
        return {Error::Kind::not_found, "there is no user '" + name + "'", "tnr-gpu-server user list names them"};
    }
    static constexpr const char* ask_for_another =
        "ask the pool's operator for another: tnr-gpu-server user add NAME --token";

    // Its own key, or machines that are left of one whose removal broke off.
    bool has_keys(const std::string& account) TNR_REQUIRES(mutex_) {
        return count("SELECT count(*) FROM keys WHERE account = ?", {account}) > 0;
    }
    bool exists(const std::string& account) TNR_REQUIRES(mutex_) {
        return has_keys(account) ||
               count("SELECT count(*) FROM tokens WHERE account = ? AND used_ms = 0", {account}) > 0;
    }

    Result<> remove_rows(std::initializer_list<const char*> tables, const std::string& account) TNR_REQUIRES(mutex_) {
        for (auto* table : tables) {
            auto sql = std::string("DELETE FROM ") + table + " WHERE account = ?";
            if (auto removed = Statement(database_.get(), sql.c_str(), {account}).run("forgetting an account");
                !removed)
                return removed;
        }
        return Ok{};
    }

    // For an account's new key, or the token that it will come with. A new account has nothing of an earlier one.
    Result<> make_room(const std::string& account, bool replace) TNR_REQUIRES(mutex_) {
        const bool taken = has_keys(account);
        if (taken && !replace)
            return Error{Error::Kind::usage, "there is already a user '" + account + "'",
                         "choose another name, or add --replace to make the old key worthless"};
        if (taken) return remove_rows({"keys", "tokens"}, account);
        return remove_rows({"keys", "tokens", "limits"}, account);
    }

    Result<std::vector<Token>> select_tokens(const std::string& which, std::initializer_list<Statement::Value> values)
        TNR_REQUIRES(mutex_) {
        std::vector<Token> found;
        auto sql = "SELECT public_key, account, issued_ms, expires_ms, used_ms FROM tokens " + which;
        Statement row(database_.get(), sql.c_str(), values);
        while (row.next()) found.push_back({row.text(0), row.text(1), row.number(2), row.number(3), row.number(4)});
        if (row.failed()) return database_error(database_.get(), "looking up tokens");
        return found;
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
        auto name = row.text(from);
        auto role = name == "account"   ? Owner::Role::account
                    : name == "machine" ? Owner::Role::machine
                                        : Owner::Role::token;
        return {role, row.text(from + 1), row.text(from + 2), row.number(from + 3) != 0};
    }

    Mutex mutex_;  // the authentication thread looks keys up, and so does the main thread
    Database database_ TNR_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path) {
    auto opened = open_database(path, keys_schema);
    if (!opened) return opened.error();
    if (auto ready = prepare(opened->get()); !ready) return ready.error();
    return std::unique_ptr<Store>(std::make_unique<SqliteStore>(std::move(*opened)));
}

Result<StoreImage> open_store_image(const std::string& bytes) {
    auto opened = open_database(":memory:", "");
    if (!opened) return opened.error();
    sqlite3* database = opened->get();
    if (!bytes.empty()) {
        auto size = static_cast<sqlite3_int64>(bytes.size());
        auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
        if (!copy) return Error{Error::Kind::internal, "no memory for the pool's accounts"};
        std::copy(bytes.begin(), bytes.end(), copy);
        // SQLite frees the copy, also when it refuses it.
        if (sqlite3_deserialize(database, "main", copy, size, size,
                                SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) != SQLITE_OK)
            return database_error(database, "reading the pool's accounts");
    }
    if (sqlite3_exec(database, keys_schema, nullptr, nullptr, nullptr) != SQLITE_OK)
        return database_error(database, "preparing the pool's accounts");
    if (auto ready = prepare(database); !ready) return ready.error();
    auto image = [database] {
        sqlite3_int64 size = 0;
        auto* bytes = sqlite3_serialize(database, "main", &size, 0);
        std::string text(reinterpret_cast<char*>(bytes), bytes ? static_cast<size_t>(size) : 0);
        sqlite3_free(bytes);
        return text;
    };
    auto store = std::make_unique<SqliteStore>(std::move(*opened));
    auto remove_part = [store = store.get()](const std::string& account, int64_t parts) {
        return store->remove_part(account, parts);
    };
    return StoreImage{std::move(store), image, remove_part};
}

}  // namespace tnr::server
