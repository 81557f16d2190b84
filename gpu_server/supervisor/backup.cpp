// See backup.hpp. The file is a copy of pool.db with one table more, `backup`, that holds the folder's other small files; and
// behind the database, where SQLite does not look, the seal: a line with the hash of all bytes before it. SQLite's own check
// finds what breaks its structure, not a bit that has flipped in a row.
#include "gpu_server/supervisor/backup.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <span>
#include <string_view>

#include "api_client/base/files.hpp"
#include "gpu_client/protocol/image_hash.hpp"
#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/pool/sqlite.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/state_folder.hpp"
#include "gpu_server/supervisor/user_commands.hpp"

namespace tnr::server {
namespace {

namespace fs = std::filesystem;

// What makes the folder this server: its key, one that is being rotated away, and the identity that nodes of a pool know.
bool of_this_server(const std::string& name) {
    return name == "identity" || (name.starts_with("server.key") && !name.ends_with(".new") &&
                                  !name.ends_with(".before-restore") && name.find('/') == std::string::npos);
}

constexpr uintmax_t small_file_bytes_max = 4096;  // none of them is longer

constexpr std::string_view seal_begins = "tnr-gpu-server backup ";
constexpr size_t seal_bytes = seal_begins.size() + 2 * sizeof(wire::ImageHash) + 1;
constexpr size_t page_bytes_min = 512;  // SQLite's: its files have nothing but whole pages

Result<Database> open_file(const std::string& path, int flags) {
    sqlite3* opened = nullptr;
    int code = sqlite3_open_v2(path.c_str(), &opened, flags, nullptr);
    Database database(opened);
    if (code != SQLITE_OK)
        return Error{Error::Kind::usage, "cannot open " + path + ": " + sqlite3_errstr(code), database_hint(opened)};
    sqlite3_busy_timeout(opened, busy_timeout_ms);
    return database;
}

Result<> copy(sqlite3* from, sqlite3* to) {
    sqlite3_backup* copying = sqlite3_backup_init(to, "main", from, "main");
    if (!copying) return database_error(to, "a copy");
    // In one go: with a write-ahead log nobody who writes has to wait for us, and in pieces it would begin anew with each write.
    const int code = sqlite3_backup_step(copying, -1);
    sqlite3_backup_finish(copying);
    if (code != SQLITE_DONE) return database_error(to, "a copy");
    return Ok{};
}

std::string content_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<fs::path> small_files(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (auto& entry : fs::directory_iterator(folder, error)) {
        if (of_this_server(entry.path().filename().string()) && entry.file_size(error) <= small_file_bytes_max)
            found.push_back(entry.path());
    }
    return found;
}

Result<> add_files(sqlite3* database, const fs::path& folder) {
    constexpr const char* schema =
        "DROP TABLE IF EXISTS backup; CREATE TABLE backup (name TEXT PRIMARY KEY, content TEXT NOT NULL)";
    if (sqlite3_exec(database, schema, nullptr, nullptr, nullptr) != SQLITE_OK)
        return database_error(database, "a copy");
    for (auto& path : small_files(folder))
        if (auto added =
                Statement(database, "INSERT INTO backup VALUES (?, ?)", {path.filename().string(), content_of(path)})
                    .run("copying the key and the identity");
            !added)
            return added;
    return Ok{};
}

Result<> write_whole_file(const std::string& path, const std::string& content) {
    UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file || ::write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
        fsync(file.get()) != 0)
        return file_error("cannot write", path, errno);
    return Ok{};
}

std::string seal_of(std::string_view content) {
    const auto bytes = std::as_bytes(std::span(content));
    return std::string(seal_begins) + wire::to_hex(wire::hash_of_image(std::array{bytes})) + "\n";
}

// The whole file, for as long as the object lives.
class Mapped {
public:
    explicit Mapped(int descriptor) {
        struct stat status {};
        if (fstat(descriptor, &status) != 0 || status.st_size <= 0) return;
        size_ = static_cast<size_t>(status.st_size);
        start_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    ~Mapped() {
        if (start_ != MAP_FAILED) munmap(start_, size_);
    }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    // Empty: it cannot be read.
    std::string_view content() const {
        return start_ == MAP_FAILED ? std::string_view() : std::string_view(static_cast<const char*>(start_), size_);
    }

private:
    void* start_ = MAP_FAILED;
    size_t size_ = 0;
};

Result<> add_seal(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
    const Mapped mapped(file.get());
    if (mapped.content().empty()) return file_error("cannot read", path, errno);
    const auto line = seal_of(mapped.content());
    if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) || fsync(file.get()) != 0)
        return file_error("cannot write", path, errno);
    return Ok{};
}

enum class Seal { good, broken, none };

// None: an older server's backup. One that has lost its seal's beginning is no multiple of a page long.
Seal seal_at(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const Mapped mapped(file.get());
    const auto content = mapped.content();
    if (content.size() > seal_bytes) {
        const auto line = content.substr(content.size() - seal_bytes);
        if (line.starts_with(seal_begins))
            return line == seal_of(content.substr(0, content.size() - seal_bytes)) ? Seal::good : Seal::broken;
    }
    return content.size() % page_bytes_min == 0 ? Seal::none : Seal::broken;
}

Result<> is_whole(sqlite3* database, const std::string& what, const std::string& hint) {
    Statement whole(database, "PRAGMA integrity_check(1)", {});
    const std::string verdict = whole.next() ? whole.text(0) : sqlite3_errmsg(database);
    if (verdict != "ok") return Error{Error::Kind::usage, what + " is damaged: " + verdict, hint};
    return Ok{};
}

// Ours, and understood.
Result<> check_backup(sqlite3* database, const std::string& file) {
    const Error foreign{Error::Kind::usage, file + " is no backup of tnr-gpu-server",
                        "`tnr-gpu-server backup FILE` makes one"};
    if (!Statement(database, "PRAGMA schema_version", {}).next())
        return sqlite3_errcode(database) == SQLITE_CORRUPT  // shorter than its first page says
                   ? Error{Error::Kind::usage, file + " is damaged: a part of it is missing", "use another backup"}
                   : foreign;
    if (auto whole = is_whole(database, file, "use another backup"); !whole) return whole;
    Statement key(database, "SELECT count(*) FROM backup WHERE name = 'server.key'", {});
    if (!key.next() || key.number(0) != 1) return foreign;
    if (auto version = version_of(database, sqlite_ledger_version, file); !version) return version.error();
    return Ok{};
}

std::string aside(const fs::path& path) {
    return path.string() + ".before-restore";
}

std::vector<fs::path> replaced_files(const fs::path& folder) {
    auto files = small_files(folder);
    for (const char* name : {"pool.db", "pool.db-wal", "pool.db-shm"})
        if (std::error_code error; fs::exists(folder / name, error)) files.push_back(folder / name);
    return files;
}

// Who restores the wrong backup, and then another, may want what was there first.
Result<> nothing_is_aside(const fs::path& folder) {
    for (auto& path : replaced_files(folder))
        if (std::error_code error; fs::exists(aside(path), error))
            return Error{Error::Kind::usage, aside(path) + " is there already, from an earlier restore",
                         "move the files *.before-restore elsewhere, or remove them"};
    return Ok{};
}

Result<> set_aside(const fs::path& folder) {
    for (auto& path : replaced_files(folder))
        if (rename(path.c_str(), aside(path).c_str()) != 0) return file_error("cannot put aside", path, errno);
    return Ok{};
}

// The table of files leaves the copy.
Result<> write_database(const std::string& fresh, sqlite3* backup) {
    if (auto made = write_whole_file(fresh, ""); !made) return made;
    {
        auto database = open_file(fresh, SQLITE_OPEN_READWRITE);
        if (!database) return database.error();
        if (auto copied = copy(backup, database->get()); !copied) return copied;
        // Fencing numbers begin again where they were: those of another pool (pool/fences.hpp).
        constexpr const char* not_kept = "DROP TABLE backup; DROP TABLE IF EXISTS pool_identity";
        if (sqlite3_exec(database->get(), not_kept, nullptr, nullptr, nullptr) != SQLITE_OK)
            return database_error(database->get(), "restoring");
    }
    auto ledger = open_sqlite_ledger(fresh);  // brings an older one up to date
    if (!ledger) return ledger.error();
    return Ok{};
}

// Names are ours, and without a way out of the folder. Nothing there is touched before all that takes its place is on the
// disk: a full one ends it here.
Result<> put_back(const fs::path& folder, sqlite3* backup) {
    std::vector<std::string> names{"pool.db"};
    const auto fresh = [&folder](const std::string& name) { return (folder / (name + ".new")).string(); };
    const auto discard = [&] {
        for (auto& name : names) unlink(fresh(name).c_str());
        for (const char* more : {"-wal", "-shm"}) unlink((fresh("pool.db") + more).c_str());
    };
    discard();
    auto written = write_database(fresh("pool.db"), backup);
    Statement row(backup, "SELECT name, content FROM backup", {});
    while (written && row.next()) {
        if (!of_this_server(row.text(0))) continue;
        names.push_back(row.text(0));
        written = write_whole_file(fresh(names.back()), row.text(1));
    }
    if (!written) {
        discard();
        return written;
    }
    if (auto old = set_aside(folder); !old) return old;
    for (auto& name : names)
        if (rename(fresh(name).c_str(), (folder / name).c_str()) != 0)
            return file_error("cannot write", folder / name, errno);
    return Ok{};
}

}  // namespace

Result<> make_backup(const std::string& state, const std::string& file, std::ostream& out) {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    if (auto there = folder->check_database(); !there) return there;
    std::error_code error;
    if (!fs::exists(folder->database(), error) || !fs::exists(folder->path() / "server.key", error))
        return Error{Error::Kind::usage, folder->path().string() + " has nothing to back up yet"};
    if (auto key = folder->kept_server_keys(); !key) return key.error();
    if (fs::exists(file, error))
        return Error{Error::Kind::usage, file + " is there already", "name a file that is not"};
    const auto fresh = file + ".new";
    unlink(fresh.c_str());
    if (auto made = write_whole_file(fresh, ""); !made) {
        if (made.error().kind != Error::Kind::not_found) return made;
        return Error{Error::Kind::not_found, "there is no folder " + fs::path(file).parent_path().string(),
                     "make it, or name a file elsewhere"};
    }
    auto copied = [&]() -> Result<> {
        auto from = open_file(folder->database(), SQLITE_OPEN_READWRITE);
        if (!from) return from.error();
        auto to = open_file(fresh, SQLITE_OPEN_READWRITE);
        if (!to) return to.error();
        if (auto done = copy(from->get(), to->get()); !done) return done;
        // `restore` would refuse it, when it is needed.
        if (auto whole = is_whole(to->get(), folder->database(), "restore an earlier backup"); !whole) return whole;
        sqlite3_exec(to->get(), "PRAGMA journal_mode = DELETE", nullptr, nullptr, nullptr);  // one file, not three
        return add_files(to->get(), folder->path());
    }();
    if (copied) copied = add_seal(fresh);
    if (copied && rename(fresh.c_str(), file.c_str()) != 0) copied = file_error("cannot write", file, errno);
    if (!copied) {
        unlink(fresh.c_str());
        return copied;
    }
    out << "Backed up " << folder->path().string() << " to " << file
        << ". It holds the server's secret key: keep it safe\n";
    if (auto store = folder->shared_store(); store && !store->empty())
        out << "The pool's accounts and prices are not in it, but in " << *store << ": etcdctl snapshot save\n";
    return Ok{};
}

Result<> restore_backup(const std::string& state, const std::string& file, bool replace, std::ostream& out) {
    std::error_code error;
    if (fs::exists(file, error) && !fs::is_regular_file(file, error))  // a pipe may never end
        return Error{Error::Kind::usage, file + " is no file", "`tnr-gpu-server backup FILE` makes one"};
    if (!fs::exists(file, error) && !error)
        return Error{Error::Kind::not_found, "there is no file " + file, "`tnr-gpu-server backup FILE` makes one"};
    auto backup = open_file(file, SQLITE_OPEN_READONLY);
    if (!backup) return backup.error();
    const auto sealed = seal_at(file);
    if (auto sound = check_backup(backup->get(), file); !sound) return sound;
    if (sealed == Seal::broken)
        return Error{Error::Kind::usage, file + " is damaged: it is not what was written", "use another backup"};
    auto folder = StateFolder::open(state);
    if (!folder) return folder.error();
    auto lock = folder->lock();
    if (!lock) return lock.error();
    if (fs::exists(folder->database(), error) && !replace)
        return Error{Error::Kind::usage, folder->database() + " is there already",
                     "--replace keeps it as " + folder->database() + ".before-restore"};
    if (auto free = nothing_is_aside(folder->path()); !free) return free;
    if (auto put = put_back(folder->path(), backup->get()); !put) return put;
    out << "Restored " << file << " to " << folder->path().string() << "\n";
    if (sealed == Seal::none)
        out << "An older tnr-gpu-server made it, without a checksum: whether it is what was written, nobody can tell\n";
    return Ok{};
}

}  // namespace tnr::server
