// See supervisor.hpp.
#include "gpu_server/supervisor/supervisor.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/pool/patience.hpp"
#include "gpu_server/supervisor/addresses.hpp"
#include "gpu_server/supervisor/books.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/control_socket.hpp"
#include "gpu_server/supervisor/exchange.hpp"
#include "gpu_server/supervisor/host_memory.hpp"
#include "gpu_server/supervisor/image_keeper.hpp"
#include "gpu_server/supervisor/lasting_settings.hpp"
#include "gpu_server/supervisor/limit_list.hpp"
#include "gpu_server/supervisor/membership.hpp"
#include "gpu_server/supervisor/replacing.hpp"
#include "gpu_server/supervisor/state_folder.hpp"
#include "gpu_server/supervisor/stopping.hpp"
#include "gpu_server/supervisor/watching.hpp"
#include "gpu_server/supervisor/wiper.hpp"
#include "gpu_server/supervisor/worker_processes.hpp"

namespace tnr::server {
namespace {

// After a crash: what was in use then is not any more. Its workers died with their supervisor, but for those of claims that were
// handed over.
Result<> recover(Ledger& ledger, const Handover* before) {
    std::set<int64_t> go_on;
    if (before)
        if (auto read = reading("books", [&]() -> Result<> { return go_on = Books::open_in(*before), Ok{}; }); !read)
            return read.error();
    auto closed = ledger.close_open("server restarted", go_on);
    if (!closed) return closed.error();
    for (auto& claim : *closed)
        log(LogLevel::warning, "claim " + std::to_string(claim.id) + " of " +
                                   machine_label(claim.account, claim.machine) + " on " + claim.gpu +
                                   " was open when the server ended; closed in the ledger");
    return Ok{};
}

// A store in trouble limits nobody.
UserLimits limits_of(Store& store, const std::string& account) {
    auto limits = store.limits(account);
    return limits ? *limits : UserLimits{};
}

// A store in trouble revokes nothing. A key that was taken away may be somebody else's by now: a removed user's friend enrolls it
// within milliseconds. An account's own key has what it has for machines that it names as it likes.
void look_for_revoked(EventLoop& loop, Store& store, Claims& claims) {
    claims.end_revoked([&](const std::string& key, const std::string& account, const std::string& machine) {
        auto owner = store.find_key(key);
        if (!owner) return true;
        return *owner && (*owner)->account == account &&
               ((*owner)->role == Owner::Role::account || (*owner)->machine == machine);
    });
    loop.after(revocation_looked_for_every, [&] { look_for_revoked(loop, store, claims); });
}

// Commands beside us may change the server's keys, which `pool` is told of (null: there are none); and lines that were left
// out of the audit log are told in the end.
// `told`: what was wrong with them last time, which is told once.
void look_at_folder(EventLoop& loop, ServerKeys& keys, AuditLog& audit, Membership* pool,
                    const std::string& told = {}) {
    auto read = keys.refresh(now_ms());
    const auto trouble = read ? std::string() : read.error().what;
    if (!read && trouble != told) log(LogLevel::error, trouble + "; the keys that were read last go on to hold");
    if (pool) pool->tell_key(keys.public_key());
    audit.tidy();
    loop.after(keys_looked_at_every, [&, pool, trouble] { look_at_folder(loop, keys, audit, pool, trouble); });
}

// The emulated GPU's memory is the host's, and granted.
uint64_t ungranted_bytes(const HostMemory& memory, const Session& session, bool emulated) {
    uint64_t bytes = memory.bytes_of(session.worker->pid), granted = 0;
    for (auto each : session.granted_bytes) granted += emulated ? each : 0;
    return bytes - std::min(bytes, granted);
}

struct HostMemoryRule {
    uint64_t bytes_per_gpu;
    bool emulated;
};

void look_at_host_memory(EventLoop& loop, Claims& claims, const WorkerProcesses& workers, const Exchange& exchange,
                         HostMemory& memory, HostMemoryRule rule) {
    std::vector<pid_t> processes;
    for (auto* worker : workers.all()) processes.push_back(worker->pid);
    memory.look_at(processes, exchange.files());
    claims.end_hungry([&](const Session& session) { return ungranted_bytes(memory, session, rule.emulated); },
                      rule.bytes_per_gpu);
    loop.after(host_memory_looked_at_every,
               [&, rule] { look_at_host_memory(loop, claims, workers, exchange, memory, rule); });
}

void look_for_left_clients(EventLoop& loop, Claims& claims, const WorkerProcesses& workers) {
    if (auto open = connections_here())
        claims.end_left([&](const Worker& worker) { return workers.has_client(worker, *open); },
                        grace_for_clients() + worker_notices_within);
    loop.after(left_clients_looked_for_every, [&] { look_for_left_clients(loop, claims, workers); });
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

uint64_t largest_memory(const std::vector<FoundGpu>& gpus) {
    uint64_t bytes = 0;
    for (auto& gpu : gpus) bytes = std::max(bytes, gpu.memory_bytes);
    return bytes;
}

// Machines are tenants in open pools only, which enroll nobody.
bool is_enrolled(Store& store, const std::string& tenant) {
    auto account = account_of_tenant(tenant);
    if (account.empty()) return true;
    auto keys = store.keys();
    if (!keys) return true;  // a store in trouble is no reason to drop anything
    return std::any_of(keys->begin(), keys->end(), [&](auto& key) { return key.owner.account == account; });
}

using OpenDirectory = std::function<std::unique_ptr<Directory>(Post)>;

// Opens what can fail now, so that the rest cannot.
Result<OpenDirectory> directory_of(const ServeOptions& options, const StateFolder& folder) {
    if (options.store.empty()) {
        if (auto tried = open_sqlite_admin(folder.database()); !tried) return tried.error();
        return OpenDirectory([path = folder.database()](Post post) {
            return std::move(*open_sqlite_directory(path, std::move(post), {.alone = true}));
        });
    }
    auto address = etcd::parse_address(options.store);
    if (!address) return address.error();
    return OpenDirectory([address = *address](Post post) { return make_etcd_directory(address, std::move(post)); });
}

// What other nodes tell clients about this one.
PoolNode own_entry(const ServeOptions& options, const std::string& address, const std::string& public_key,
                   const std::string& identity) {
    return {node_name(options), options.control_address.empty() ? address : options.control_address,
            options.plain ? "" : public_key, control::version(), identity};
}

std::map<std::string, std::string> keys_of(const std::vector<PoolNode>& nodes) {
    std::map<std::string, std::string> names;
    for (auto& node : nodes)
        if (!node.server_key.empty()) names[node.server_key] = node.name;
    return names;
}

Result<ControlSocketOptions> control_options(const ServeOptions& options) {
    if (auto sound = check_addresses(options); !sound) return sound.error();
    ControlSocketOptions control;
    auto listen = parse_endpoint(options.listen);
    if (!listen) return listen.error();
    control.listen = *listen;
    control.plain = options.plain;
    control.descriptors = raise_descriptor_limit();
    control.one_port = options.one_port;
    return control;
}

// A store that does not answer yet is asked again for as long as the pool has to take us in: after a power cut its host may
// be up later than ours. With `programs` that run it is asked until it answers: they can do without it. Only one that has been
// reached is the folder's from then on, for every command: who mistypes an address keeps the store that was.
Result<std::unique_ptr<Store>> open_store(EventLoop& loop, const StateFolder& folder, const std::string& shared,
                                          const bool& ending, bool programs) {
    const auto give_up_at = programs ? EventLoop::Clock::time_point::max() : loop.now() + join_timeout;
    auto store = folder.open_store(shared);
    if (!store) log(LogLevel::warning, store.error().what);
    while (!store && store.error().kind == Error::Kind::network && !ending && loop.now() < give_up_at) {
        loop.run_once(store_tried_again_after);
        store = folder.open_store(shared);
    }
    if (store)
        if (auto saved = folder.save_shared_store(shared); !saved) return saved.error();
    return store;
}

// The folder's, which an earlier server in this process has held.
Result<UniqueFd> lock_of(const StateFolder& folder, Handover* before) {
    UniqueFd lock;
    if (!before) return folder.lock(state_folder_let_go_within);
    auto taken = reading("lock", [&]() -> Result<> {
        lock = before->take(before->at("lock"));
        return lock ? Result<>(Ok{}) : badly_handed_over("the folder's lock is not there");
    });
    if (!taken) return taken.error();
    return lock;
}

// Helpers that the one before did not wait for.
Result<> expect_leftovers(Reaper& reaper, const Handover& before) {
    return reading("children", [&]() -> Result<> {
        for (auto& child : before.at("children")) reaper.expect(child.get<pid_t>(), [](int) {});
        return Ok{};
    });
}

Result<watch::Reloads> reloads_with(const Handover* before) {
    watch::Reloads reloads;
    if (!before) return reloads;
    auto read = reading("history", [&]() -> Result<> {
        auto& section = before->at("reloads");
        section.at("done").get_to(reloads.done);
        section.at("failed").get_to(reloads.failed);
        section.at("why_failed").get_to(reloads.why_failed);
        return Ok{};
    });
    if (!read) return read.error();
    return reloads;
}

// One server in this process. `before`: handed over by the one before it, empty once it has taken over. `next`: what it hands over
// itself, where it does not end but is to be replaced.
Result<> serve_once(ServeOptions options, const OwnCommand& command, const Ready& ready,
                    std::optional<Handover>& before, std::optional<Handover>& next) {
    auto* given = before ? &*before : nullptr;
    if (given)
        if (auto same = take_over(options, *given); !same) return same;
    auto folder = StateFolder::open(options.state);
    if (!folder) return folder.error();
    auto control = control_options(options);
    if (!control) return control.error();
    auto lock = lock_of(*folder, given);
    if (!lock) return lock.error();
    if (!options.store.empty())
        if (auto address = etcd::parse_address(options.store); !address) return address.error();
    if (auto there = folder->check_database(); !there) return there;
    auto ledger = open_sqlite_ledger(folder->database());
    if (!ledger) return ledger.error();
    if (auto recovered = recover(**ledger, given); !recovered) return recovered.error();

    AuditLog audit(folder->path());
    ServerKeys keys(*folder);
    if (auto read = keys.refresh(now_ms()); !read) return read.error();
    auto open_directory = directory_of(options, *folder);
    if (!open_directory) return open_directory.error();

    std::optional<LedgerSync> syncing;

    auto cache = ImageCache::open(folder->images(), {.bytes = options.image_cache_mib << 20});
    if (!cache) return cache.error();

    GpuOptions gpu_options = options.gpus;
    auto identity = folder->identity();
    if (!identity) return identity.error();
    if (gpu_options.emulated_seed.empty()) gpu_options.emulated_seed = *identity;
    auto source = GpuSource::choose(gpu_options);
    if (!source) return source.error();
    auto found = given ? Gpus::found_before(*given) : source->find();
    if (!found) return found.error();

    EventLoop loop;
    bool ending = false;
    std::function<void(int)> asked = [&](int) { ending = true; };
    Reaper reaper(loop, [&](int signal) { asked(signal); });
    if (given)
        if (auto expected = expect_leftovers(reaper, *given); !expected) return expected;
    // From here on there are threads: after the Reaper has blocked signals.
    auto store = open_store(loop, *folder, options.store, ending, given);
    if (!store) return store.error();
    NodeKeys node_keys;
    Doorkeeper door(options.plain, **store, audit, keys, node_keys);
    if (given)
        if (auto taken = ControlSocket::take_over(*given, *control); !taken) return taken;
    const auto descriptors = control->descriptors;
    // What clients are told may be no address of this host: of a router before it, or of the cloud around it.
    const auto worker_host = options.worker_bind.empty() ? control->listen.host : options.worker_bind;
    auto socket = ControlSocket::open(std::move(*control), door);
    if (!socket) return socket.error();

    WorkerProcesses workers(loop, reaper, *source, worker_host, options.worker_ports);
    if (auto* front_door = (*socket)->front_door()) workers.stand_behind(*front_door, (*socket)->endpoint());
    Gpus gpus(loop, workers, make_wiper(loop, reaper, *source));
    auto self = own_entry(options, (*socket)->address(), keys.public_key(), *identity);
    Membership pool(loop, gpus, *open_directory);
    Books books(loop, **ledger, self.name);
    Claims claims(loop, gpus, workers, books,
                  {options.linger, options.plain, options.worker_address, options.plain ? 0 : options.lanes,
                   [&](const std::string& account) { return limits_of(**store, account); }, &pool, options.one_port});
    pool.on({[&] { claims.lease_renewed(); },
             [&](auto& uuids) { claims.end_on(uuids, "its GPU belongs to another node of the pool"); },
             [&] { node_keys.set(keys_of(pool.others())); }});
    auto nvml = options.nvml.empty() ? make_own_facts_source() : make_nvml_source(options.nvml);
    for (auto& gpu : *found)
        if (auto minor = nvml->minor_number(gpu.uuid)) source->set_minor(gpu.selector, *minor);
    ImageKeeper images(loop, reaper, workers, std::move(*cache),
                       [&](const std::string& tenant) { return is_enrolled(**store, tenant); });
    Exchange exchange(
        workers, gpus, [&](const Worker& worker) { return claims.claim_of(worker); },
        descriptors - descriptors_kept_back);
    Handler handler(loop, gpus, claims, {**store, audit, keys, node_keys}, **ledger, books, *nvml, images, pool);

    auto host_bytes = options.host_memory_mib > 0 ? options.host_memory_mib << 20 : host_bytes_per_gpu(found->size());
    watch::NodeState node{node_name(options), control::version(), (*socket)->address(), now_ms()};
    node.limits = limit_list(host_bytes);
    auto reloads = reloads_with(given);
    if (!reloads) return reloads.error();
    node.reloads = *reloads;
    auto watching = Watching::start(loop, {gpus, claims, books, handler, pool, node, options.plain, options.name},
                                    options.http, *folder, {**store, keys}, given);
    if (!watching) return watching.error();
    handler.on_pool([&](auto& caller, bool with_day) { return (*watching)->told_to(caller, with_day); });

    Replacing replacing(loop, {reaper, **socket, handler, claims, gpus, workers, pool}, command, *reloads,
                        [&](auto& reloads) { (*watching)->node_reloads(reloads); });
    auto end_now = [&](const std::string& why) {
        ending = true;
        replacing.never();
        log(LogLevel::info, "ending: " + why);
        gpus.stop();
        claims.end_all("the pool's server was stopped");
        for (auto* worker : workers.all())
            if (worker->state != Worker::State::serving) workers.kill(*worker);
        loop.after(shutdown_grace, [&] { loop.stop(); });
    };
    Stopping stopping(
        loop, claims, options.stop_grace,
        [&] {
            replacing.never();
            (*watching)->node_is_ending();
        },
        end_now);
    asked = [&](int signal) {
        if (signal == SIGHUP && !command.has_terminal) return replacing.asked();
        stopping.asked(signal);
    };

    syncing.emplace(**ledger);
    HostMemory memory;
    look_at_host_memory(loop, claims, workers, exchange, memory, {host_bytes, source->emulated()});
    look_for_left_clients(loop, claims, workers);
    workers.hold(host_bytes + (source->emulated() ? largest_memory(*found) : 0));
    std::string types = summary(*found);
    gpus.add_later(std::move(*found));
    if (!given) {
        workers.divide_groups();
        pool.join(std::move(self), options.history);
    } else {
        const FindWorker find_worker = [&](pid_t pid) { return workers.with_id(pid); };
        auto taken = workers.take_over(*given);
        if (taken) taken = gpus.take_over(*given);
        if (taken) taken = books.take_over(*given);
        if (taken) taken = exchange.take_over(*given, find_worker);
        if (taken) taken = claims.take_over(*given, find_worker);
        if (taken) taken = pool.take_over(std::move(self), options.history, *given);
        if (!taken) return taken;
    }
    // Nobody shall ask before anything may begin.
    const auto give_up_at = loop.now() + join_timeout;
    const auto may_begin = [&] { return pool.may_begin() && (!given || pool.knows_itself()); };
    while (!ending && !may_begin() && loop.now() < give_up_at) loop.run_once(join_looked_at_every);
    if (!ending && !given && !pool.may_begin()) return pool.why_not_joined();
    if (given) {
        const auto programs = std::to_string(workers.all().size());  // of now: next, waiting workers are begun
        gpus.go_on();
        claims.go_on();
        log(LogLevel::info, "has taken over from the server before it: " + programs + " programs go on");
    }
    (*watching)->begin();
    if (!options.plain) look_for_revoked(loop, **store, claims);
    look_at_folder(loop, keys, audit, options.plain ? nullptr : &pool);
    auto reached_at = options.control_address.empty() ? (*socket)->address() : options.control_address;
    if (auto saved = folder->save_address(reached_at, options.plain); !saved) return saved.error();
    (*socket)->serve(loop, handler);
    log(LogLevel::info, "tnr-gpu-server " + control::version() +
                            (options.name.empty() ? "" : " (" + options.name + ")") + " serves " + types + " at " +
                            (*socket)->address() + (options.plain ? ", plain text" : ""));
    if (!given) ready((*socket)->address());
    before.reset();
    replacing.begin();
    while (!ending && !replacing.ready()) loop.run_once(milliseconds::max());
    if (replacing.ready()) {
        next.emplace();
        hand_over(options, *next);
        next->section("lock") = next->keep(std::move(*lock));
        auto& so_far = replacing.reloads();
        next->section("reloads") = {
            {"done", so_far.done + 1}, {"failed", so_far.failed}, {"why_failed", so_far.why_failed}};
        claims.hand_over(*next);
        exchange.hand_over(*next);
        books.hand_over(*next);
        gpus.hand_over(*next);
        (*socket)->hand_over(*next);
        (*watching)->hand_over(*next);
        next->section("children") = reaper.all_but(workers.ids());
        workers.hand_over(*next);
        pool.hand_over(*next);
        return Ok{};
    }
    while (!workers.none() && !loop.stopped()) loop.run_once(milliseconds::max());
    pool.leave();
    log(LogLevel::info, "ended");
    return Ok{};
}

}  // namespace

// A server that is to be replaced executes the next one here, with nothing of it left but what it hands over. Where that cannot be,
// it takes over from itself; what nobody can take over is ended, as after a crash.
Result<> serve(const ServeOptions& options, const Ready& ready) {
    // Our memory holds the pool's keys; workers run as the same user and are fed by strangers.
    prctl(PR_SET_DUMPABLE, 0);
    const auto command = OwnCommand::read();
    auto received = Handover::received();
    std::optional<Handover> before;
    if (received) before = std::move(*received);
    auto begin_anew = [&](const Error& why) {
        log(LogLevel::error, why.what + "; the programs that ran have ended");
        before.reset();
        end_all_children();
    };
    if (!received) begin_anew(received.error());
    while (true) {
        std::optional<Handover> next;
        auto ended = serve_once(options, command, ready, before, next);
        if (next) {
            auto why = next->execute(command).what;
            log(LogLevel::error, why + "; this server goes on");
            auto& reloads = next->section("reloads");
            reloads = {{"done", reloads.at("done").get<uint64_t>() - 1},
                       {"failed", reloads.at("failed").get<uint64_t>() + 1},
                       {"why_failed", why}};
            before = std::move(next);
        } else if (!ended && before) {
            begin_anew(ended.error());
        } else {
            return ended;
        }
    }
}

Result<> can_take_over(const ServeOptions& options) {
    auto folder = StateFolder::find(options.state);
    if (!folder) return folder.error();
    if (auto keys = folder->kept_server_keys(); !keys) return keys.error();
    if (auto tried = folder->try_writing(); !tried) return tried;
    return check_sqlite_ledger(folder->database());
}

}  // namespace tnr::server
