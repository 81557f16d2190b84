// The few things of SQLite that the store needs, with errors as Results.
#pragma once

#include <sqlite3.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <variant>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::server {

using Database = Handle<sqlite3, sqlite3_close>;

// What helps its operator, where the kind of error tells.
inline const char* database_hint(sqlite3* database) {
    constexpr int kind = 0xff;  // the rest says where it happened
    switch (sqlite3_errcode(database) & kind) {
        case SQLITE_FULL:
        case SQLITE_IOERR:
            return "is the disk full? `df` shows it";
        case SQLITE_BUSY:
            return "another process keeps it locked: is somebody else at work on the file?";
        case SQLITE_READONLY:
        case SQLITE_CANTOPEN:
            return "does it belong to this user, and can its disk be written?";
        case SQLITE_NOTADB:
        case SQLITE_CORRUPT:
            return "restore a backup: tnr-gpu-server restore FILE --replace";
        default:
            return "";
    }
}

inline Error database_error(sqlite3* database, const std::string& doing) {
    return {Error::Kind::internal, doing + " in the server's database failed: " + sqlite3_errmsg(database),
            database_hint(database)};
}

// How long one process waits for another's transaction; ours take less than a millisecond.
inline constexpr int busy_timeout_ms = 2000;

// `schema`: statements that may be run again and again. Write-ahead log with synchronous=NORMAL: a commit survives every
// crash of ours and costs microseconds; what a power cut may take with it is up to make_durable().
inline Result<Database> open_database(const std::string& path, const char* schema) {
    sqlite3* opened = nullptr;
    int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
    Database database(opened);
    if (code != SQLITE_OK)
        return Error{Error::Kind::internal, "cannot open " + path + ": " + sqlite3_errstr(code), database_hint(opened)};
    sqlite3_busy_timeout(opened, busy_timeout_ms);
    for (const char* sql : {"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", schema})
        if (sqlite3_exec(opened, sql, nullptr, nullptr, nullptr) != SQLITE_OK)
            return database_error(opened, "preparing " + path);
    return database;
}

// True: its path leads to another file by now, or to none. Whatever is written goes into one that nobody finds.
inline bool has_moved(sqlite3* database) {
    int moved = 0;
    sqlite3_file_control(database, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    return moved != 0;
}

// What was written before survives a power cut from now on; takes as long as the disk does. A checkpoint begins with making
// the log durable; that another process is at it already is as good.
inline Result<> make_durable(sqlite3* database, const std::string& doing) {
    int code = sqlite3_wal_checkpoint_v2(database, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
    if (code == SQLITE_OK || code == SQLITE_BUSY) return Ok{};
    return database_error(database, doing);
}

// One statement, run to its end or row by row.
class Statement {
public:
    using Value = std::variant<std::monostate, int64_t, std::string>;

    Statement(sqlite3* database, const char* sql, std::initializer_list<Value> values) : database_(database) {
        sqlite3_stmt* made = nullptr;
        failed_ = sqlite3_prepare_v2(database, sql, -1, &made, nullptr) != SQLITE_OK;
        statement_.reset(made);
        int at = 0;
        for (auto& value : values) {
            ++at;
            if (auto* number = std::get_if<int64_t>(&value))
                sqlite3_bind_int64(made, at, *number);
            else if (auto* text = std::get_if<std::string>(&value))
                sqlite3_bind_text(made, at, text->data(), static_cast<int>(text->size()), SQLITE_TRANSIENT);
        }
    }

    // True while there is a row to read.
    bool next() {
        if (failed_) return false;
        int code = sqlite3_step(statement_.get());
        failed_ = code != SQLITE_ROW && code != SQLITE_DONE;
        conflict_ = code == SQLITE_CONSTRAINT;
        return code == SQLITE_ROW;
    }
    bool failed() const { return failed_; }
    bool conflict() const { return conflict_; }  // a row with this key is already there
    // For a statement without rows.
    Result<> run(const std::string& doing) {
        while (next()) {
        }
        if (failed_) return database_error(database_, doing);
        return Ok{};
    }

    int64_t number(int column) const { return sqlite3_column_int64(statement_.get(), column); }
    bool is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
    std::string text(int column) const {
        auto* bytes = sqlite3_column_text(statement_.get(), column);
        return bytes ? reinterpret_cast<const char*>(bytes) : "";
    }

private:
    sqlite3* database_;
    Handle<sqlite3_stmt, sqlite3_finalize> statement_;
    bool failed_ = false;
    bool conflict_ = false;
};

// The `user_version` of the file at `path`; an error where that is larger than `newest`.
inline Result<int64_t> version_of(sqlite3* database, int64_t newest, const std::string& path) {
    Statement row(database, "PRAGMA user_version", {});
    const int64_t version = row.next() ? row.number(0) : 0;
    if (version <= newest) return version;
    return Error{Error::Kind::usage, path + " was written by a newer tnr-gpu-server", "update this one"};
}

// All until commit(), or nothing. Where it has not begun, because another process keeps the file locked, each statement would
// be a change of its own: so nobody goes on then.
class Transaction {
public:
    explicit Transaction(sqlite3* database) : database_(database) {
        if (sqlite3_exec(database, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) != SQLITE_OK)
            trouble_ = database_error(database, "a change");
    }
    ~Transaction() {
        if (!trouble_ && !done_) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    }
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    [[nodiscard]] Result<> begun() const { return trouble_ ? Result<>(*trouble_) : Ok{}; }
    Result<> commit() {
        if (trouble_) return *trouble_;
        if (sqlite3_exec(database_, "COMMIT", nullptr, nullptr, nullptr) != SQLITE_OK)
            return database_error(database_, "a change");
        done_ = true;
        return Ok{};
    }

private:
    sqlite3* database_;
    std::optional<Error> trouble_;
    bool done_ = false;
};

}  // namespace tnr::server
