// See supervisor.hpp.
#include "gpu_server/supervisor/supervisor.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/books.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/control_socket.hpp"
#include "gpu_server/supervisor/host_memory.hpp"
#include "gpu_server/supervisor/image_keeper.hpp"
#include "gpu_server/supervisor/state_folder.hpp"
#include "gpu_server/supervisor/wiper.hpp"
#include "gpu_server/supervisor/worker_processes.hpp"

namespace tnr::server {
namespace {

// After a crash: what was in use then is not any more. Its workers died with their supervisor.
Result<> recover(Ledger& ledger) {
    auto closed = ledger.close_open("server restarted");
    if (!closed) return closed.error();
    for (auto& claim : *closed)
        log(LogLevel::warning, "claim " + std::to_string(claim.id) + " of " + claim.machine + " on " + claim.gpu +
                                   " was open when the server ended; closed in the ledger");
    return Ok{};
}

// Whom the ledger shall name: pools have several nodes, and people know them by their hosts' names.
std::string node_name(const ServeOptions& options) {
    if (!options.name.empty()) return options.name;
    char host[machine_name_bytes_max + 1] = "";
    gethostname(host, sizeof host - 1);
    return host;
}

// A store in trouble limits nobody.
UserLimits limits_of(Store& store, const std::string& account) {
    auto limits = store.limits(account);
    return limits ? *limits : UserLimits{};
}

// A store in trouble revokes nothing.
void look_for_revoked(EventLoop& loop, Store& store, Claims& claims) {
    claims.end_revoked([&](const std::string& key) {
        auto owner = store.find_key(key);
        return !owner || *owner;
    });
    loop.after(revocation_looked_for_every, [&] { look_for_revoked(loop, store, claims); });
}

// The emulated GPU's memory is the host's, and granted.
void look_at_host_memory(EventLoop& loop, Claims& claims, uint64_t bytes_max, bool emulated) {
    claims.end_hungry(
        [&](const Session& session) {
            uint64_t bytes = host_bytes_of(session.worker->pid), granted = 0;
            for (auto each : session.granted_bytes) granted += emulated ? each : 0;
            return bytes - std::min(bytes, granted);
        },
        bytes_max);
    loop.after(host_memory_looked_at_every,
               [&loop, &claims, bytes_max, emulated] { look_at_host_memory(loop, claims, bytes_max, emulated); });
}

// As many descriptors as the system allows and we have a use for: each connection is one.
int raise_descriptor_limit() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::max(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, descriptors_wanted));
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
}

std::string summary(const std::vector<FoundGpu>& gpus) {
    std::string text;
    for (auto& gpu : gpus) text += (text.empty() ? "" : ", ") + gpu.type;
    return text;
}

// Machines are tenants in open pools only, which enroll nobody.
bool is_enrolled(Store& store, const std::string& tenant) {
    auto account = account_of_tenant(tenant);
    if (account.empty()) return true;
    auto keys = store.keys();
    if (!keys) return true;  // a store in trouble is no reason to drop anything
    return std::any_of(keys->begin(), keys->end(), [&](auto& key) { return key.owner.account == account; });
}

Result<ControlSocketOptions> control_options(const ServeOptions& options, const StateFolder& folder) {
    ControlSocketOptions control;
    auto listen = parse_endpoint(options.listen);
    if (!listen) return listen.error();
    if (options.plain && !listen->loopback())
        return Error{Error::Kind::usage, "plain text is for loopback only, and " + options.listen + " is not",
                     "leave --plain away: clients then need a key, see tnr-gpu-server enroll --help"};
    control.listen = *listen;
    control.plain = options.plain;
    auto keys = folder.server_keys();
    if (!keys) return keys.error();
    if (!options.plain) control.keys = *keys;
    control.descriptors = raise_descriptor_limit();
    return control;
}

}  // namespace

Result<> serve(const ServeOptions& options, const std::function<void(const std::string&)>& ready) {
    // Our memory holds the pool's keys; workers run as the same user and are fed by strangers.
    prctl(PR_SET_DUMPABLE, 0);

    auto folder = StateFolder::open(options.state);
    if (!folder) return folder.error();
    auto control = control_options(options, *folder);
    if (!control) return control.error();
    auto lock = folder->lock();
    if (!lock) return lock.error();
    auto store = open_sqlite_store(folder->database());
    if (!store) return store.error();
    auto ledger = open_sqlite_ledger(folder->database());
    if (!ledger) return ledger.error();
    if (auto recovered = recover(**ledger); !recovered) return recovered.error();

    std::optional<LedgerSync> syncing;

    auto cache = ImageCache::open(folder->images(), {.bytes = options.image_cache_mib << 20});
    if (!cache) return cache.error();

    GpuOptions gpu_options = options.gpus;
    gpu_options.emulated_seed = folder->server_keys()->public_key;
    auto source = GpuSource::choose(gpu_options);
    if (!source) return source.error();
    auto found = source->find();
    if (!found) return found.error();

    EventLoop loop;
    std::function<void(int)> asked_to_end;
    Reaper reaper(loop, [&](int signal) { asked_to_end(signal); });
    auto socket = ControlSocket::open(*control, **store);  // makes threads: after the Reaper has blocked signals
    if (!socket) return socket.error();

    std::string worker_host = options.worker_address.empty() ? control->listen.host : options.worker_address;
    if (control->listen.wildcard()) worker_host = control->listen.host;
    WorkerProcesses workers(loop, reaper, *source, worker_host, options.worker_ports);
    Gpus gpus(loop, workers, make_wiper(loop, reaper, *source));
    Books books(loop, **ledger, node_name(options));
    Claims claims(loop, gpus, workers, books,
                  {options.linger, options.plain, options.worker_address, options.plain ? 0 : options.lanes,
                   [&](const std::string& account) { return limits_of(**store, account); }});
    auto nvml = options.nvml.empty() ? make_own_facts_source() : make_nvml_source(options.nvml);
    for (auto& gpu : *found)
        if (auto minor = nvml->minor_number(gpu.uuid)) source->set_minor(gpu.selector, *minor);
    ImageKeeper images(loop, reaper, workers, std::move(*cache),
                       [&](const std::string& tenant) { return is_enrolled(**store, tenant); });
    Handler handler(loop, gpus, claims, **store, **ledger, books, *nvml, images);

    bool ending = false;
    asked_to_end = [&](int signal) {
        if (ending) return;
        ending = true;
        log(LogLevel::info, std::string("ending: ") + strsignal(signal));
        gpus.stop();
        claims.end_all("the pool's server was stopped");
        for (auto* worker : workers.all())
            if (worker->state != Worker::State::serving) workers.kill(*worker);
        loop.after(shutdown_grace, [&] { loop.stop(); });
    };

    syncing.emplace(**ledger);
    auto host_bytes = options.host_memory_mib > 0 ? options.host_memory_mib << 20 : host_bytes_per_gpu(found->size());
    look_at_host_memory(loop, claims, host_bytes, source->emulated());
    std::string types = summary(*found);
    gpus.add(std::move(*found));
    if (!options.plain) look_for_revoked(loop, **store, claims);
    if (auto saved = folder->save_address((*socket)->address(), options.plain); !saved) return saved.error();
    (*socket)->serve(loop, handler);
    log(LogLevel::info, "tnr-gpu-server " + control::version() +
                            (options.name.empty() ? "" : " (" + options.name + ")") + " serves " + types + " at " +
                            (*socket)->address() + (options.plain ? ", plain text" : ""));
    ready((*socket)->address());
    while (!ending) loop.run_once(milliseconds::max());
    while (!workers.none() && !loop.stopped()) loop.run_once(milliseconds::max());
    log(LogLevel::info, "ended");
    return Ok{};
}

}  // namespace tnr::server
