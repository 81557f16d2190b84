// `tnr delete`: the machine first, since it is what costs money; then its key at the pool; our record last, so that
// a failure on the way leaves something to run the command again on.
#include "cli/commands/delete.hpp"

#include <filesystem>

#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"

namespace tnr::cli {
namespace {

Result<> ask(Session& session, const std::string& what) {
    if (!session.in_is_terminal)
        return Error{Error::Kind::usage, "delete " + what + "? There is nobody to ask", "say --yes when you mean it"};
    session.err << "Delete " << what << "? [y/N] " << std::flush;
    std::string answer;
    std::getline(session.in, answer);
    if (answer == "y" || answer == "Y" || answer == "yes") return Ok{};
    return Error{Error::Kind::usage, "nothing was deleted"};
}

// The pool may be out of reach, or no longer ours; the machine's key is worth nothing once the machine is gone, so
// that only earns a word.
void forget_at_pool(Session& session, const Record& record) {
    auto login = session.logins().find(record.pool);
    auto pool = login ? session.pool(*login) : Result<std::unique_ptr<Pool>>{login.error()};
    auto forgotten = pool ? (*pool)->forget_machine(record.name) : Result<>{pool.error()};
    if (!forgotten)
        session.err << "note: the pool at " << record.pool << " still knows the key of '" << record.name
                    << "': " << forgotten.error().what << "\n";
}

// A record that cannot be read must not keep its machine alive.
Result<std::optional<Record>> record_or_nothing(Session& session, const std::string& name) {
    auto record = session.records().find(name);
    if (record || record.error().kind != Error::Kind::internal) return record;
    session.err << "note: " << record.error().what << "\n";
    return std::optional<Record>{};
}

Result<std::optional<Machine>> machine_to_delete(Session& session, const DeleteOptions& options,
                                                 const std::optional<Record>& record, Provider& provider) {
    // Not ordered yet: a machine of that name is somebody else's.
    if (record && record->step < Step::ordered) return std::optional<Machine>{};
    if (record) {
        auto machine = look_up(provider, *record);
        // The provider has it and cannot read what it knows of it; that is no reason to keep it.
        bool broken = !machine && machine.error().kind == Error::Kind::internal && !record->id.empty();
        if (!broken) return machine;
        return std::optional<Machine>{Machine{.id = record->id, .name = record->name}};
    }
    Record nameless;
    nameless.name = options.name;
    auto machine = look_up(provider, nameless);
    if (!machine || *machine) return machine;
    if (session.records().exists(options.name)) return machine;  // damaged, and no machine: just remove it
    return Error{Error::Kind::not_found, "there is no machine called '" + options.name + "'",
                 "`tnr status` shows yours"};
}

Result<> destroy(Session& session, Provider& provider, const std::string& name, const std::string& id) {
    auto progress = session.progress();
    progress.begin("deleting '" + name + "'");
    auto destroyed = provider.destroy(id);
    if (destroyed) progress.end();
    return destroyed;
}

Result<> tell_plan(Session& session, const std::string& name, const std::string& provider, bool exists) {
    if (session.json)
        print_json(session.out, {{"dry_run", true}, {"name", name}, {"exists", exists}});
    else
        session.out << "Would delete '" << name << "' at provider " << provider << (exists ? "" : " (already gone)")
                    << ". Nothing was changed.\n";
    return Ok{};
}

Result<> tell(Session& session, const std::string& name, const std::string& provider, bool existed) {
    if (session.json)
        print_json(session.out, {{"name", name}, {"deleted", true}, {"existed", existed}});
    else if (existed)
        session.out << "Deleted '" << name << "' and its disk\n";
    else
        session.out << "'" << name << "' was already gone at provider " << provider << "; forgot it\n";
    return Ok{};
}

}  // namespace

Result<> delete_machine(Session& session, const DeleteOptions& options) {
    if (auto good = check_machine_name(options.name); !good) return good;
    auto lock = session.records().lock(options.name);
    if (!lock) return lock.error();
    auto record = record_or_nothing(session, options.name);
    if (!record) return record.error();
    std::string where = *record ? (*record)->provider : options.provider.empty() ? "local" : options.provider;
    auto provider = session.provider(where);
    if (!provider) return provider.error();
    auto machine = machine_to_delete(session, options, *record, **provider);
    if (!machine) return machine.error();
    if (options.dry_run) return tell_plan(session, options.name, where, machine->has_value());
    if (*machine && !options.yes)
        if (auto agreed = ask(session, "'" + options.name + "' and all that is on its disk"); !agreed) return agreed;
    // A machine that is gone may have left something behind: a QEMU whose folder was deleted runs on.
    std::string id = *machine ? (*machine)->id : *record ? (*record)->id : "";
    if (!id.empty())
        if (auto destroyed = destroy(session, **provider, options.name, id); !destroyed) return destroyed;
    if (*record) forget_at_pool(session, **record);
    if (auto removed = session.records().remove(options.name); !removed) return removed;
    return tell(session, options.name, where, machine->has_value());
}

void add_delete(Grammar& tnr, Session& session) {
    auto options = std::make_shared<DeleteOptions>();
    auto command = tnr.command("delete", "Remove a machine, its disk and its key at the pool");
    command.required("name", options->name, "The machine, as `tnr status` shows it");
    command.option("--provider", options->provider, "Where to look for a machine that was made on another computer");
    command.flag("-y,--yes", options->yes, "Do not ask");
    command.flag("--dry-run", options->dry_run, "Show what would be deleted");
    command.footer("Asks first; in a script say --yes.\n\nExample:\n  tnr delete demo --yes");
    command.run([&session, options] { session.result = delete_machine(session, *options); });
}

}  // namespace tnr::cli
