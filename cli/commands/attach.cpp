// `tnr attach` and `tnr detach`: which GPU the programs get that start on a machine from now on. Those that run keep what
// they have. The machine's one file says it, so this takes one connection and nothing is made anew; the pool is asked while
// that connection is made.
#include "cli/commands/attach.hpp"

#include "cli/commands/commands.hpp"
#include "cli/commands/reach.hpp"
#include "cli/json_out.hpp"
#include "cli/same_pool.hpp"
#include "cli/side_by_side.hpp"

namespace tnr::cli {
namespace {

// A machine that runs and has our libraries; nobody else changes it meanwhile.
struct Prepared {
    RecordLock lock;
    Known known;
    std::unique_ptr<MachineAccess> access;
};

Result<Prepared> prepare(Session& session, const std::string& name) {
    if (auto good = check_machine_name(name); !good) return good.error();
    auto lock = session.records().lock(name);
    if (!lock) return lock.error();
    auto known = find_running(session, name);
    if (!known) return known.error();
    if (known->record.step < Step::installed)
        return Error{Error::Kind::remote, "'" + name + "' is not set up yet", "`tnr start " + name + "` continues"};
    if (known->provider->brings_gpus())
        return Error{
            Error::Kind::usage,
            "the GPU of '" + name + "' is " + known->record.provider + "'s own, which nothing of ours replaces",
            "`tnr resize " + name + " --size SIZE` changes it; `tnr offers --provider " + known->record.provider +
                "` shows sizes"};
    return Prepared{std::move(*lock), std::move(*known), session.access()};
}

Result<> get_in(Prepared& prepared) {
    return prepared.access->get_in(prepared.known.machine, prepared.known.record, [](const std::string&) {
        return Result<>{Error{Error::Kind::network, "it does not answer", "`tnr status` shows whether it runs"}};
    });
}

Result<> configure(Session& session, Prepared& prepared, const GpuWish& wish) {
    Record& record = prepared.known.record;
    auto login = session.logins().find(record.pool);
    if (!login) return login.error();
    auto address = pool_address_for(prepared.known.provider->pool_host(), login->address);
    if (!address) return address.error();
    GpuConfig config{*address, wish.type, wish.count, record.name, {login->keys.server_public, record.machine_key}};
    record.gpu = wish.type;
    record.count = wish.count;
    if (auto saved = session.records().save(record); !saved) return saved;  // the wish; `start` would continue it
    if (auto set = prepared.access->configure(wish.type.empty() ? "" : to_json_text(config)); !set) return set;
    record.has_gpu = wish.type;
    record.has_count = wish.type.empty() ? 0 : wish.count;
    return session.records().save(record);
}

Result<> tell(Session& session, const char* command, const Known& known, const std::string& words) {
    std::vector<Trouble> troubles;
    if (auto noted = note_machine(session, known.machine, known.record); !noted)
        troubles.push_back({known.record.name, noted.error()});
    if (!session.json) session.out << words << "\n";
    return finish(session, command, {{"machine", machine_json(known.record, known.machine, "")}}, troubles);
}

}  // namespace

Result<> attach(Session& session, const AttachOptions& options) {
    ui::Progress progress(session.screen());
    progress.begin("attaching a GPU to '" + options.name + "'", asking_patience);
    auto prepared = prepare(session, options.name);
    if (!prepared) return prepared.error();
    auto opened = open_pool(session, prepared->known.record.pool);
    if (!opened) return opened.error();
    Pool& pool = *opened->pool;
    prepared->known.record.pool = opened->login.address;
    Result<GpuWish> wish = GpuWish{};
    Result<> in = Ok{};
    side_by_side(session, {[&] { in = get_in(*prepared); },
                           [&] { wish = choose_gpu(pool, options.gpu, "tnr attach " + options.name); }});
    if (!wish) return wish.error();
    if (!in) return in.error();
    if (auto set = configure(session, *prepared, *wish); !set) return set;
    progress.end();
    return tell(session, "attach", prepared->known,
                "'" + options.name + "' has " + std::to_string(wish->count) + " x " + wish->type +
                    " for programs started from now on");
}

Result<> detach(Session& session, const std::string& name) {
    ui::Progress progress(session.screen());
    progress.begin("detaching the GPU of '" + name + "'", asking_patience);
    auto prepared = prepare(session, name);
    if (!prepared) return prepared.error();
    if (auto in = get_in(*prepared); !in) return in.error();
    if (auto set = configure(session, *prepared, {"", 1}); !set) return set;
    progress.end();
    return tell(
        session, "detach", prepared->known,
        "'" + name + "' has no GPU for programs started from now on; `tnr attach " + name + " TYPE` gives it one");
}

void add_attach(Grammar& tnr, Session& session) {
    auto options = std::make_shared<AttachOptions>();
    auto command = tnr.command("attach", "Give a machine another GPU, for programs started from now on");
    command.required("name", options->name, "The machine, as `tnr status` shows it");
    command.option("gpu", options->gpu, "GPU type, or TYPE:COUNT; may be left out where the pool has one type");
    command.footer(
        "Takes less than a second and touches nothing that runs: a program keeps the GPU that it began with.\n\n"
        "Examples:\n  tnr attach demo a100\n  tnr attach demo h100:2\n  tnr detach demo");
    command.run([&session, options] { session.result = attach(session, *options); });
}

}  // namespace tnr::cli
