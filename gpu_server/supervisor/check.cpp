// See check.hpp. To add one: a function that adds its findings, and its line in check().
#include "gpu_server/supervisor/check.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/etcd.hpp"
#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/pool/ledger_report.hpp"
#include "gpu_server/pool/sqlite.hpp"
#include "gpu_server/supervisor/addresses.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/print.hpp"
#include "gpu_server/supervisor/state_folder.hpp"
#include "gpu_server/supervisor/worker_groups.hpp"

namespace tnr::server {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t mib = uint64_t{1} << 20;
// Of the state folder's disk: below the first the ledger may soon not be written, below the second no code is kept.
constexpr uint64_t disk_bytes_least = 100 * mib, disk_bytes_wanted = 2048 * mib;
constexpr rlim_t descriptors_least = 512, descriptors_enough = 4096;
constexpr rlim_t locked_bytes_wanted = rlim_t{1} << 30;  // for staging buffers, which a real driver pins

struct Finding {
    enum class Level { ok, warn, fail };
    Level level;
    std::string about, what, hint;
};

class Findings {
public:
    void ok(std::string about, std::string what) { add(Finding::Level::ok, std::move(about), std::move(what), ""); }
    void warn(std::string about, std::string what, std::string hint) {
        add(Finding::Level::warn, std::move(about), std::move(what), std::move(hint));
    }
    void fail(std::string about, std::string what, std::string hint) {
        add(Finding::Level::fail, std::move(about), std::move(what), std::move(hint));
    }
    std::vector<Finding> all;

private:
    void add(Finding::Level level, std::string about, std::string what, std::string hint) {
        all.push_back({level, std::move(about), std::move(what), std::move(hint)});
    }
};

const char* name_of(Finding::Level level) {
    return level == Finding::Level::ok ? "ok" : level == Finding::Level::warn ? "warn" : "fail";
}

// ---- the GPUs

void check_driver(const ServeOptions& options, Findings& found) {
    auto source = GpuSource::choose(options.gpus);
    if (!source) return found.fail("driver", source.error().what, source.error().hint);
    auto gpus = source->find();
    if (!gpus) return found.fail("driver", gpus.error().what, gpus.error().hint);
    std::map<std::string, int> types;
    for (auto& gpu : *gpus) ++types[gpu.type];
    std::string text;
    for (auto& [type, count] : types) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + type;
    found.ok("driver", source->driver() + " shows " + text);
}

void check_devices(const ServeOptions& options, Findings& found) {
    if (!options.gpus.emulate.empty()) return found.ok("devices", "none are needed: the GPUs are emulated");
    std::string missing;
    int numbered = 0;
    std::error_code error;
    for (auto& entry : fs::directory_iterator("/dev", error)) {
        auto name = entry.path().filename().string();
        const bool gpu = name.size() > 6 && name.starts_with("nvidia") && isdigit(static_cast<unsigned char>(name[6]));
        numbered += gpu;
        if ((gpu || name == "nvidiactl" || name == "nvidia-uvm") && access(entry.path().c_str(), R_OK | W_OK) != 0)
            missing += (missing.empty() ? "" : ", ") + entry.path().string();
    }
    if (!missing.empty())
        return found.fail("devices", "this user may not open " + missing,
                          "give it the group that owns them, or chmod 666");
    if (numbered == 0)
        return found.warn("devices", "there is no /dev/nvidia0",
                          "they come with `nvidia-modprobe -c 0 -u`; containers need them given");
    found.ok("devices", std::to_string(numbered) + " of /dev/nvidia0 and so on can be opened");
}

void check_nvml(const ServeOptions& options, Findings& found) {
    if (options.nvml.empty()) return found.ok("nvml", "none is needed: the GPUs are emulated");
    void* library = dlopen(options.nvml.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return found.warn("nvml",
                          options.nvml + " does not load: no sensors in nvidia-smi, and workers see all device files",
                          "it comes with the driver; --nvml names another");
    dlclose(library);
    found.ok("nvml", options.nvml);
}

// ---- the state folder

bool may_write(const fs::path& folder) {
    return access(folder.c_str(), R_OK | W_OK | X_OK) == 0;
}

void check_database(const StateFolder& folder, Findings& found) {
    if (auto there = folder.check_database(); !there)
        return found.fail("store", there.error().what, there.error().hint);
    const auto path = folder.database();
    std::error_code error;
    if (!fs::exists(path, error)) return found.ok("store", "there is none yet: " + path);
    // Then SQLite cannot say whether it is sound, and somebody would restore a backup.
    if (access(path.c_str(), R_OK | W_OK) != 0 || !may_write(fs::path(path).parent_path()))
        return found.fail("store", "this user may not write " + path, "does it belong to this user?");
    sqlite3* opened = nullptr;
    int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE, nullptr);
    Database database(opened);
    if (code != SQLITE_OK)
        return found.fail("store", path + ": " + sqlite3_errstr(code), "does it belong to this user?");
    sqlite3_busy_timeout(opened, busy_timeout_ms);
    Statement whole(opened, "PRAGMA quick_check(1)", {});
    const std::string verdict = whole.next() ? whole.text(0) : sqlite3_errmsg(opened);
    if (verdict != "ok")
        return found.fail("store", path + " is damaged: " + verdict, "tnr-gpu-server restore FILE, from a backup");
    if (auto version = version_of(opened, sqlite_ledger_version, path); !version)
        return found.fail("store", version.error().what, version.error().hint);
    Statement latest(opened, "SELECT max(until_ms) FROM claims", {});
    const int64_t ahead_ms = latest.next() && !latest.is_null(0) ? latest.number(0) - now_ms() : 0;
    constexpr int64_t ahead_ms_max = 60'000;
    if (ahead_ms > ahead_ms_max)
        found.warn("clock", "the ledger's latest claim is from " + std::to_string(ahead_ms / 1000) + " s in the future",
                   "the clock was set back; is it right now?");
    found.ok("store", path);
}

void check_keys(const StateFolder& folder, Findings& found) {
    if (folder.may_make_keys()) return;  // `serve` makes them
    if (auto key = folder.kept_server_keys(); !key) return found.fail("key", key.error().what, key.error().hint);
    if (auto old = folder.old_server_key(); !old) return found.fail("key", old.error().what, old.error().hint);
    found.ok("key", (folder.path() / "server.key").string());
}

// Each of etcd's members by itself: a server goes on with those that answer, and nobody would notice the others.
void check_etcd(const std::string& store, Findings& found) {
    constexpr int connect_ms = 2'000, total_ms = 5'000;
    auto address = etcd::parse_address(store);
    if (!address) return found.fail("etcd", address.error().what, address.error().hint);
    size_t silent = 0;
    std::string which, hint;
    for (auto& url : address->urls) {
        auto alone = *address;
        alone.urls = {url};
        etcd::Client member(alone, {.connect_ms = connect_ms, .total_ms = total_ms});
        auto listed = member.list(etcd::all_around(address->prefix, address->prefix, 1));
        if (listed) {
            if (auto wrong = member.troubles(); wrong && !wrong->empty())
                return found.fail("etcd", url + ": " + *wrong,
                                  wrong->find("NOSPACE") != std::string::npos ? etcd::full_hint
                                                                              : "look at it: etcdctl endpoint status");
            continue;
        }
        ++silent;
        which += (which.empty() ? "" : "; ") + url + ": no answer (" + listed.error().what + ")";
        hint = listed.error().hint;
    }
    if (silent == address->urls.size()) return found.fail("etcd", which, hint);
    if (silent > 0) return found.warn("etcd", which + "; the others do", hint);
    found.ok("etcd", store + " answers");
}

void check_disk(const fs::path& folder, Findings& found) {
    struct statvfs disk {};
    if (statvfs(folder.c_str(), &disk) != 0) return;
    const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
    if (free < disk_bytes_least)
        found.fail("disk", gib_text(free) + " are free: the ledger cannot be written for long",
                   "make room on the disk of " + folder.string());
    else if (free < disk_bytes_wanted)
        found.warn("disk", gib_text(free) + " are free: programs' code is not kept",
                   "make room on the disk of " + folder.string());
    else
        found.ok("disk", gib_text(free) + " are free for " + folder.string());
}

// True: a server runs on it, whose ports are its own.
bool check_state(const ServeOptions& options, Findings& found) {
    auto folder = StateFolder::find(options.state);
    if (!folder) {
        const auto place = StateFolder::place(options.state);
        fs::path parent = place.parent_path();
        std::error_code error;
        while (!parent.empty() && !fs::exists(parent, error)) parent = parent.parent_path();
        if (fs::exists(place, error) && !fs::is_directory(place, error))
            found.fail("state", place.string() + " is not a folder", "give another: --state DIR");
        else if (folder.error().what.find("there is no server's folder") == std::string::npos)
            found.fail("state", folder.error().what, folder.error().hint);
        else if (!may_write(parent))
            found.fail("state", "this user may not make " + place.string(),
                       "make it, owned by the user who serves, mode 0700");
        else
            found.ok("state", "there is none yet; `serve` makes it");
        check_disk(parent, found);
        return false;
    }
    const auto path = folder->path();
    const bool writable = may_write(path);
    if (!writable)
        found.fail("state", "this user may not write in " + path.string(),
                   "check as the user who serves, or chown it to that one");
    else
        found.ok("state", path.string());
    check_keys(*folder, found);
    check_database(*folder, found);
    check_disk(path, found);
    if (!writable) return false;  // who may not lock it cannot tell whether somebody else has
    auto lock = folder->lock();
    if (!lock) found.ok("running", "a server runs on this folder");
    return !lock;
}

// ---- the network

void check_port(const std::string& about, const std::string& address, Findings& found) {
    auto endpoint = parse_endpoint(address);
    if (!endpoint) return found.fail(about, endpoint.error().what, endpoint.error().hint);
    Endpoint where;
    if (auto socket = bind_to(endpoint->host, endpoint->port, where); !socket)
        return found.fail(about, socket.error().what, socket.error().hint);
    found.ok(about, address.substr(address.find("//") + 2) + " is free");
}

void check_names(const ServeOptions& options, Findings& found) {
    if (auto sound = check_addresses(options); !sound)
        return found.fail("addresses", sound.error().what, sound.error().hint);
    found.ok("addresses", "of node " + node_name(options));
}

void check_ports(const ServeOptions& options, Findings& found) {
    check_port("listen", options.listen, found);
    auto endpoint = parse_endpoint(options.listen);
    if (!options.http.empty()) check_port("http", "tcp://" + options.http, found);
    const auto range = options.worker_ports;
    if (!range.first || !endpoint) return;
    int taken = 0;
    const auto host = options.worker_bind.empty() ? endpoint->host : options.worker_bind;
    for (int port = range.first; port <= range.last; ++port) {
        Endpoint where;
        taken += !bind_to(host, port, where);
    }
    const int all = range.last - range.first + 1;
    const auto text = std::to_string(taken) + " of the " + std::to_string(all) + " worker ports are taken";
    if (taken == all)
        found.fail("worker-ports", text, "give a range that nobody else uses: --worker-ports");
    else if (taken > 0)
        found.warn("worker-ports", text, "that many programs fewer can run at once");
    else
        found.ok("worker-ports", std::to_string(all) + " are free; the firewall must let them in");
}

// ---- the host

void check_clock(Findings& found) {
    timex clock{};
    if (adjtimex(&clock) == TIME_ERROR || (clock.status & STA_UNSYNC))
        found.warn("clock", "nothing keeps it in step", "bills are by the clock: timedatectl set-ntp true, or chrony");
    else
        found.ok("clock", "kept in step");
}

void check_descriptors(Findings& found) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const auto text = std::to_string(limit.rlim_max) + " descriptors at most";
    if (limit.rlim_max < descriptors_least)
        found.fail("descriptors", text, "raise it: LimitNOFILE=65536 in the unit, or ulimit -Hn");
    else if (limit.rlim_max < descriptors_enough)
        found.warn("descriptors", text + ": few connections", "raise it: LimitNOFILE=65536 in the unit, or ulimit -Hn");
    else
        found.ok("descriptors", text);
}

void check_locked_memory(const ServeOptions& options, Findings& found) {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (options.gpus.emulate.empty() && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < locked_bytes_wanted)
        return found.warn("locked memory", gib_text(limit.rlim_cur) + " at most",
                          "copies are slower without: LimitMEMLOCK=infinity in the unit");
    found.ok("locked memory", limit.rlim_cur == RLIM_INFINITY ? "without a limit" : gib_text(limit.rlim_cur));
}

void check_namespaces(Findings& found) {
    pid_t child = fork();
    if (child == 0) _exit(unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) == 0 ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    if (status == 0) return found.ok("namespaces", "workers get a network and a filesystem of their own");
    found.warn("namespaces", "this kernel lets this user make none: workers are confined by seccomp alone",
               "sysctl kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0");
}

void check_cgroups(Findings& found) {
    std::string missing;
    for (auto& name : WorkerGroups::missing_on_this_host()) missing += (missing.empty() ? "" : ", ") + name;
    if (missing.empty())
        return found.ok("cgroups", "version 2: in a unit with Delegate= each worker is held to its part");
    found.warn("cgroups", "without " + missing + ": workers have resource limits only",
               "boot with systemd.unified_cgroup_hierarchy=1");
}

void print(const Findings& found, const std::string& format, std::ostream& out) {
    if (format == "json") {
        nlohmann::json list = nlohmann::json::array();
        for (auto& each : found.all)
            list.push_back(
                {{"level", name_of(each.level)}, {"about", each.about}, {"what", each.what}, {"hint", each.hint}});
        out << nlohmann::json{{"checks", list}}.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
        return;
    }
    constexpr size_t level_columns = 6, about_columns = 15;
    for (auto& each : found.all) {
        std::string level = name_of(each.level), about = each.about;
        level.resize(level_columns, ' ');
        about.resize(std::max(about_columns, about.size() + 1), ' ');
        out << level << about << each.what << "\n";
        if (!each.hint.empty()) out << std::string(level_columns + about_columns, ' ') << "→ " << each.hint << "\n";
    }
}

}  // namespace

Result<> check(const ServeOptions& options, const std::string& format, std::ostream& out) {
    Findings found;
    check_driver(options, found);
    check_devices(options, found);
    check_nvml(options, found);
    const bool running = check_state(options, found);
    if (!options.store.empty()) check_etcd(options.store, found);
    check_names(options, found);
    if (!running) check_ports(options, found);
    check_clock(found);
    check_descriptors(found);
    check_locked_memory(options, found);
    check_namespaces(found);
    check_cgroups(found);
    print(found, format, out);
    const auto failed = std::count_if(found.all.begin(), found.all.end(),
                                      [](const Finding& each) { return each.level == Finding::Level::fail; });
    if (failed == 0) return Ok{};
    return Error{Error::Kind::internal, std::to_string(failed) + " of " + std::to_string(found.all.size()) +
                                            " checks failed: `serve` would not run, or not for long"};
}

}  // namespace tnr::server
