// `tnr delete`: the machine first, since it is what costs money; then its key at the pool; our record last, so that
// a failure on the way leaves something to run the command again on.
//
// What there is to delete is the provider's to say, by the tag that all our machines carry: a record may be lost, may
// have been made anew by a start that then found the name taken, or may name a machine that has a successor.
#include "cli/commands/delete.hpp"

#include <algorithm>

#include "api_client/base/interrupt.hpp"
#include "api_client/base/text.hpp"
#include "cli/ask.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/same_pool.hpp"
#include "cli/ssh_config.hpp"
#include "cli/target.hpp"

namespace tnr::cli {
namespace {

// One name, and all that goes with it.
struct Doomed {
    std::string name;
    RecordLock lock;
    std::optional<Record> record = {};
    struct At {
        std::unique_ptr<Provider> provider;
        Machine machine;
        bool strange;  // not the one that our record speaks of
    };
    std::vector<At> machines = {};
    struct Left {
        std::unique_ptr<Provider> provider;
        std::vector<Leftover> things;
    };
    std::vector<Left> left = {};  // where there is no machine: keys and firewalls of one that was cut off
    std::string where = {};       // the provider for messages
    bool damaged = false;         // there is a record, which nobody can read
    std::vector<std::string> asked = {};
    std::string passed_over = {};  // providers that nobody is signed in to

    // Our record says that it was ordered, so what there is of it is ours. What a damaged one says nobody knows.
    bool ordered_here() const { return damaged || (record && record->step >= Step::ordered); }
};

// A record that cannot be read must not keep its machine alive.
Result<> read_record(Session& session, Doomed& doomed) {
    auto record = session.records().find(doomed.name);
    if (record) doomed.record = *record;
    if (record || record.error().kind != Error::Kind::internal) return record ? Ok{} : Result<>{record.error()};
    doomed.damaged = true;
    session.err << "note: " << ui::plain(record.error().what) << "; its machine is looked for by its name\n";
    return Ok{};
}

// The machine that the record names, when the list of those with our tag did not have it.
Result<> add_recorded(Provider& provider, const Record& record, std::vector<Machine>& found) {
    auto is_it = [&](const Machine& machine) { return machine.id == record.id; };
    if (record.id.empty() || std::any_of(found.begin(), found.end(), is_it)) return Ok{};
    auto machine = provider.machine(record.id);
    if (machine && machine->state != MachineState::gone) found.push_back(*machine);
    if (machine || machine.error().kind == Error::Kind::not_found) return Ok{};
    // The provider has it and cannot read what it knows of it; that is no reason to keep it.
    if (machine.error().kind != Error::Kind::internal || interrupt::interrupted()) return machine.error();
    found.push_back(Machine{.id = record.id, .name = record.name});
    return Ok{};
}

Result<> look_at(Session& session, const std::string& provider_name, Doomed& doomed) {
    auto provider = session.provider(provider_name);
    if (!provider) return provider.error();
    auto machines = (*provider)->machines();
    if (!machines) return machines.error();
    doomed.asked.push_back(provider_name);
    std::vector<Machine> found;
    for (const auto& machine : *machines)
        if (machine.name == doomed.name && machine.state != MachineState::gone) found.push_back(machine);
    bool recorded = doomed.record && doomed.record->provider == provider_name;
    if (recorded)
        if (auto added = add_recorded(**provider, *doomed.record, found); !added) return added;
    for (const auto& machine : found) {
        bool ours = recorded && doomed.record->step >= Step::ordered &&
                    (doomed.record->id.empty() || doomed.record->id == machine.id);
        auto own = session.provider(provider_name);
        if (!own) return own.error();
        doomed.machines.push_back({std::move(*own), machine, !ours});
        doomed.where = provider_name;
    }
    return Ok{};
}

// Without a record and without --provider the machine may be at any provider. Those that we are not signed in to are passed
// over, with a word; one that does not answer may have it.
Result<> look_everywhere(Session& session, Doomed& doomed) {
    for (const auto& name : session.provider_names) {
        auto signed_in = session.provider(name);
        if (!signed_in && signed_in.error().kind == Error::Kind::auth)
            doomed.passed_over += (doomed.passed_over.empty() ? "" : ", ") + name;
        else if (auto looked = look_at(session, name, doomed); !looked)
            return looked;  // also one that refuses us: a token that has expired hides a machine that costs
    }
    if (!doomed.passed_over.empty())
        session.err << "note: not asked, since you are not signed in there: " << doomed.passed_over << "\n";
    return Ok{};
}

// A record that nobody can read speaks of a machine that may be where nobody was asked. It stays until somebody is.
Result<> may_forget(const Doomed& doomed) {
    if (!doomed.damaged || !doomed.machines.empty() || doomed.passed_over.empty()) return Ok{};
    return Error{Error::Kind::remote,
                 "where the machine '" + doomed.name +
                     "' is nobody knows, as its record is damaged: it may be at a provider that was not asked",
                 "sign in there (`tnr login`), or name the one that had it: `tnr delete " + doomed.name +
                     " --provider PROVIDER`"};
}

// By the record's id, destroy() finds what is left; else it is looked for by the name, wherever the machine may have been.
Result<> find_leftovers(Session& session, Doomed& doomed) {
    if (!doomed.machines.empty() || (doomed.record && !doomed.record->id.empty())) return Ok{};
    for (const auto& name : doomed.asked) {
        auto provider = session.provider(name);
        if (!provider) return provider.error();
        auto things = (*provider)->leftovers(doomed.name);
        if (!things) return things.error();
        if (things->empty()) continue;
        doomed.left.push_back({std::move(*provider), std::move(*things)});
        doomed.where = name;
    }
    return Ok{};
}

Result<Doomed> find_doomed(Session& session, const DeleteOptions& options, const std::string& name) {
    if (auto good = check_machine_name(name); !good) return good.error();
    auto lock = session.records().lock(name);
    if (!lock) return lock.error();
    Doomed doomed{name, std::move(*lock)};
    if (auto read = read_record(session, doomed); !read) return read.error();
    doomed.where = !options.provider.empty() ? options.provider : doomed.record ? doomed.record->provider : "";
    ui::Progress progress(session.screen());
    progress.begin("looking for '" + name + "'", asking_patience);
    auto looked = doomed.where.empty() ? look_everywhere(session, doomed) : look_at(session, doomed.where, doomed);
    if (looked) looked = find_leftovers(session, doomed);
    if (!looked) return looked.error();
    progress.end();
    if (auto may = may_forget(doomed); !may) return may.error();
    if (!doomed.machines.empty() || !doomed.left.empty() || session.records().exists(name)) return doomed;
    std::vector<std::string> names;
    for (const auto& each : session.records().all().records) names.push_back(each.name);
    return Error{Error::Kind::not_found, "there is no machine called '" + name + "'",
                 did_you_mean(name, names) + "`tnr status` shows yours"};
}

std::string list_of(const std::vector<Doomed>& all) {
    std::string list;
    for (const auto& doomed : all)
        if (!doomed.machines.empty()) {
            list += (list.empty() ? "'" : ", '") + doomed.name + "'";
            if (doomed.machines.front().machine.foreign)
                list += " (made by its cloud's own tool)";
            else if (doomed.machines.front().strange)
                list += " (made by another computer, or its record was lost)";
        }
    return list;
}

// "firewall tnr-demo, SSH key tnr-demo at provider hetzner"
std::string leftovers_of(const Doomed& doomed) {
    std::string list;
    for (const auto& left : doomed.left) {
        for (const auto& thing : left.things) list += (list.empty() ? "" : ", ") + ui::plain(thing.what);
        list += " at provider " + left.provider->name();
    }
    return list;
}

// Without a record of ours they may be of a machine that another computer is about to make.
std::string list_of_leftovers(const std::vector<Doomed>& all) {
    std::string list;
    for (const auto& doomed : all)
        if (!doomed.left.empty() && !doomed.ordered_here())
            list += (list.empty() ? "'" : "; of '") + doomed.name + "': " + leftovers_of(doomed);
    return list;
}

// What is gone already is forgotten without a question.
Result<bool> may_delete(Session& session, const DeleteOptions& options, const std::vector<Doomed>& all) {
    const std::string what = list_of(all), left = list_of_leftovers(all);
    if (options.yes || (what.empty() && left.empty())) return true;
    if (!session.in_is_terminal)
        return Error{Error::Kind::usage,
                     "delete " + (what.empty() ? "what is left of " + left : what) + "? There is nobody to ask",
                     "say --yes when you mean it: `tnr delete " + all.front().name + " --yes`"};
    if (!left.empty()) session.err << "Without a machine there is of " << left << "\n";
    if (what.empty()) return ask_whether(session, "Remove that?");
    return ask_whether(session, "Delete " + what + " and all that is on " +
                                    (all.size() > 1 ? "their disks" : "its disk") +
                                    (left.empty() ? "?" : ", and that?"));
}

// The pool may be out of reach, or no longer ours; the machine's key is worth nothing once the machine is gone, so
// that only earns a word. Without a record the default pool is the likely one; of a damaged one the pool is unknown.
void forget_at_pool(Session& session, const Doomed& doomed) {
    if (doomed.record && doomed.record->pool.empty()) return;  // its GPU was its cloud's
    auto opened = open_pool(session, doomed.record ? doomed.record->pool : "");
    auto forgotten = opened ? opened->pool->forget_machine(doomed.name) : Result<>{opened.error()};
    if (!forgotten && doomed.damaged)
        session.err << "note: which pool knows the key of '" << doomed.name
                    << "' its record does not tell; the default one could not be asked to forget it: "
                    << forgotten.error().what << "\n";
    if (!forgotten && doomed.record)
        session.err << "note: the pool at " << doomed.record->pool << " still knows the key of '" << doomed.name
                    << "': " << forgotten.error().what << "\n";
}

// What it was: of a machine that our record is not about, its cloud knows more than we do.
Record record_of(const Doomed& doomed) {
    Record about = doomed.record.value_or(Record{});
    about.name = doomed.name;
    about.provider = doomed.where;
    return about;
}

// A machine that is gone may have left something behind: a QEMU whose folder was deleted runs on.
// And of one that was ordered by a tnr which was killed there may be a key and a firewall.
Result<> remove_remains(Session& session, const Doomed& doomed) {
    if (doomed.ordered_here() && doomed.record && !doomed.record->id.empty()) {
        auto provider = session.provider(doomed.record->provider);
        return provider ? (*provider)->destroy(doomed.record->id) : Result<>{provider.error()};
    }
    for (const auto& left : doomed.left)
        for (const auto& thing : left.things)
            if (auto removed = left.provider->remove_leftover(thing); !removed) return removed;
    return Ok{};
}

Result<> destroy(Session& session, Doomed& doomed, std::vector<Trouble>& troubles) {
    ui::Progress progress(session.screen());
    progress.begin("deleting '" + doomed.name + "'",
                   doomed.machines.empty() ? asking_patience : std::chrono::milliseconds{0});
    for (auto& at : doomed.machines) {
        if (auto destroyed = at.provider->destroy(at.machine.id); !destroyed) return destroyed;
        at.machine.state = MachineState::gone;
        if (auto noted = note_machine(session, at.machine, record_of(doomed)); !noted)
            troubles.push_back({doomed.name, noted.error()});
    }
    if (doomed.machines.empty())
        if (auto removed = remove_remains(session, doomed); !removed) return removed;
    progress.end();
    return Ok{};
}

void tell(Session& session, const Doomed& doomed, bool forgotten) {
    if (session.json) return;
    const char* end = forgotten && (doomed.record || doomed.damaged) ? "; forgot it\n" : "\n";
    std::string cost;
    for (const auto& at : doomed.machines)
        if (auto one = cost_so_far(session, at.machine, record_of(doomed)); !one.empty()) cost = "; " + one;
    if (!doomed.machines.empty())
        session.out << "Deleted '" << doomed.name << "' and its disk" << cost << "\n";
    else if (!doomed.left.empty())
        session.out << "Removed what was left of '" << doomed.name << "': " << leftovers_of(doomed) << end;
    else if (doomed.record && doomed.record->step < Step::ordered)
        session.out << "'" << doomed.name << "' had not been made yet" << end;
    else
        session.out << "'" << doomed.name << "' was already gone"
                    << (doomed.where.empty() ? "" : " at provider " + doomed.where) << end;
}

void tell_plan(Session& session, const Doomed& doomed) {
    if (session.json) return;
    if (!doomed.left.empty()) {
        session.out << "Would remove what is left of '" << doomed.name << "': " << leftovers_of(doomed)
                    << ". Nothing was changed.\n";
        return;
    }
    session.out << "Would delete '" << doomed.name << "'"
                << (doomed.where.empty() ? "" : " at provider " + doomed.where)
                << (doomed.machines.empty() ? " (already gone)" : "") << ". Nothing was changed.\n";
}

nlohmann::json document_of(const Doomed& doomed, bool deleted) {
    auto leftovers = nlohmann::json::array();
    for (const auto& left : doomed.left)
        for (const auto& thing : left.things) leftovers.push_back(thing.what);
    return {{"name", doomed.name},
            {"provider", or_null(doomed.where)},
            {"existed", !doomed.machines.empty()},
            {"deleted", deleted},
            {"leftovers", leftovers}};
}

// Whether the machine is gone now. What is left of it here is among the troubles.
bool delete_one(Session& session, Doomed& doomed, std::vector<Trouble>& troubles) {
    auto went_well = [&](const Result<>& done) {
        if (!done) troubles.push_back({doomed.name, done.error()});
        return static_cast<bool>(done);
    };
    if (!went_well(destroy(session, doomed, troubles))) return false;
    forget_at_pool(session, doomed);
    bool forgotten = went_well(forget_login_key(doomed.name, session.config_folder));
    forgotten &= went_well(session.records().remove(doomed.name));
    (void)SshConfig(session).remove(doomed.name);  // a block too many does no harm: its address answers to nobody
    tell(session, doomed, forgotten);
    return true;
}

}  // namespace

Result<> delete_machines(Session& session, const DeleteOptions& options) {
    std::vector<Doomed> all;
    std::vector<Trouble> troubles;
    for (const auto& name : options.names) {
        auto doomed = find_doomed(session, options, name);
        if (doomed) all.push_back(std::move(*doomed));
        if (!doomed) troubles.push_back({name, doomed.error()});
        if (interrupt::interrupted()) return interrupt::error();
    }
    auto agreed = options.dry_run ? Result<bool>{true} : may_delete(session, options, all);
    if (!agreed) return agreed.error();
    if (!*agreed) {
        session.err << "Nothing was deleted\n";
        session.exit_code = exit_failed;
    }
    auto machines = nlohmann::json::array();
    for (auto& doomed : all) {
        bool wanted = *agreed && !options.dry_run && !interrupt::interrupted();
        const bool deleted = wanted && delete_one(session, doomed, troubles);
        if (options.dry_run) tell_plan(session, doomed);
        machines.push_back(document_of(doomed, deleted));
    }
    return finish(session, "delete", {{"machines", machines}, {"dry_run", options.dry_run}}, troubles);
}

void add_delete(Grammar& tnr, Session& session) {
    auto options = std::make_shared<DeleteOptions>();
    auto command = tnr.command("delete", "Remove machines, their disks and their keys at the pool");
    command.alias("rm");
    command.required_words("name", options->names, "The machines, as `tnr status` shows them");
    command.option("--provider", options->provider, "Where to look; unless told, where each machine was made");
    command.flag("-y,--yes", options->yes, "Do not ask");
    command.flag("--dry-run", options->dry_run, "Show what would be deleted");
    command.footer(
        "Asks first; in a script say --yes. The providers are asked what there is, so a machine is also found when it\n"
        "was made on another computer, and so are a key and a firewall that a start which was cut off has left "
        "there.\n\nExamples:\n  tnr delete demo --yes\n  tnr delete demo other");
    command.run([&session, options] { session.result = delete_machines(session, *options); });
}

}  // namespace tnr::cli
