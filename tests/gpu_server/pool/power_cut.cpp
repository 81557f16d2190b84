// See power_cut.hpp.
#include "power_cut.hpp"

#include <cstring>
#include <fstream>
#include <new>
#include <sstream>

#include "tests/support/catch.hpp"

namespace tnr::test {
namespace {

UnsteadyDisk* disk = nullptr;

// Behind it lies the system's own.
struct File {
    sqlite3_file base;
    std::string* path;
    sqlite3_file* below() { return reinterpret_cast<sqlite3_file*>(this + 1); }
    const sqlite3_io_methods* io() { return below()->pMethods; }
};

File* of(sqlite3_file* file) {
    return reinterpret_cast<File*>(file);
}

std::string contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

int close(sqlite3_file* file) {
    int code = of(file)->io()->xClose(of(file)->below());
    delete of(file)->path;
    return code;
}
int sync(sqlite3_file* file, int flags) {
    int code = of(file)->io()->xSync(of(file)->below(), flags);
    disk->durable[*of(file)->path] = contents(*of(file)->path);
    ++disk->syncs;
    return code;
}

// Everything else goes straight through.
const sqlite3_io_methods methods = {
    2,
    close,
    [](sqlite3_file* f, void* to, int n, sqlite3_int64 at) { return of(f)->io()->xRead(of(f)->below(), to, n, at); },
    [](sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
        return of(f)->io()->xWrite(of(f)->below(), from, n, at);
    },
    [](sqlite3_file* f, sqlite3_int64 size) { return of(f)->io()->xTruncate(of(f)->below(), size); },
    sync,
    [](sqlite3_file* f, sqlite3_int64* size) { return of(f)->io()->xFileSize(of(f)->below(), size); },
    [](sqlite3_file* f, int level) { return of(f)->io()->xLock(of(f)->below(), level); },
    [](sqlite3_file* f, int level) { return of(f)->io()->xUnlock(of(f)->below(), level); },
    [](sqlite3_file* f, int* held) { return of(f)->io()->xCheckReservedLock(of(f)->below(), held); },
    [](sqlite3_file* f, int op, void* with) { return of(f)->io()->xFileControl(of(f)->below(), op, with); },
    [](sqlite3_file* f) { return of(f)->io()->xSectorSize(of(f)->below()); },
    // Not that a write is safe once it was made.
    [](sqlite3_file*) { return 0; },
    [](sqlite3_file* f, int page, int size, int extend, void volatile** to) {
        return of(f)->io()->xShmMap(of(f)->below(), page, size, extend, to);
    },
    [](sqlite3_file* f, int from, int n, int flags) { return of(f)->io()->xShmLock(of(f)->below(), from, n, flags); },
    [](sqlite3_file* f) { of(f)->io()->xShmBarrier(of(f)->below()); },
    [](sqlite3_file* f, int remove) { return of(f)->io()->xShmUnmap(of(f)->below(), remove); },
    nullptr,
    nullptr,
};

int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* given) {
    file->pMethods = nullptr;
    int code = disk->below->xOpen(disk->below, name, of(file)->below(), flags, given);
    if (code != SQLITE_OK) return code;
    of(file)->path = new std::string(name ? name : "");
    file->pMethods = &methods;
    return SQLITE_OK;
}

}  // namespace

UnsteadyDisk::UnsteadyDisk() : below(sqlite3_vfs_find(nullptr)) {
    above_ = *below;
    above_.zName = "unsteady";
    above_.pNext = nullptr;
    above_.szOsFile = static_cast<int>(sizeof(File)) + below->szOsFile;
    above_.xOpen = open;
    disk = this;
    REQUIRE(sqlite3_vfs_register(&above_, 1) == SQLITE_OK);
}

UnsteadyDisk::~UnsteadyDisk() {
    sqlite3_vfs_unregister(&above_);
    sqlite3_vfs_register(below, 1);
    disk = nullptr;
}

void UnsteadyDisk::cut_power(const std::string& database, const std::string& left_at) const {
    for (const auto* part : {"", "-wal"}) {
        auto found = durable.find(database + part);
        if (found != durable.end()) std::ofstream(left_at + part) << found->second;
    }
}

}  // namespace tnr::test
