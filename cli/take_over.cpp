// See take_over.hpp.
#include "cli/take_over.hpp"

#include "cli/own_gpu.hpp"
#include "cli/target.hpp"

namespace tnr::cli {
namespace {

constexpr const char* cloud_of_numbers = "thunder";

Result<Machine> foreign_machine(Provider& provider, const std::string& name) {
    auto machines = provider.machines();
    if (!machines) return machines.error();
    for (const auto& machine : *machines)
        if (machine.name == name && machine.state != MachineState::gone) return machine;
    return Error{
        Error::Kind::not_found, "Thunder has no instance " + number_in(name),
        "`tnr status` shows those there are; should a new machine be called '" + name + "', say where with --provider"};
}

// The key first: should we be cut off, the next start lets the same one in again.
Result<> take_over(Session& session, Provider& provider, const Machine& machine) {
    auto lock = session.records().lock(machine.name);
    if (!lock) return lock.error();
    Record record;
    record.name = machine.name;
    record.provider = provider.name();
    record.id = machine.id;
    record.step = Step::ordered;
    record.created = session.now();
    take_own_gpu(record, machine);
    auto key = make_login_key(record, session.config_folder);
    if (!key) return key.error();
    if (auto in = provider.let_in(machine, ssh::public_line(*key, "")); !in) return in;
    session.err << "note: instance " << number_in(machine.name) << ", which the original tnr has made, is '"
                << machine.name << "' here; it lets in a new key of this computer\n";
    return session.records().save(record);
}

}  // namespace

Result<StartOptions> taken_over(Session& session, StartOptions options) {
    const bool elsewhere = !options.provider.empty() && options.provider != cloud_of_numbers;
    if (number_in(options.name).empty() || elsewhere || session.records().exists(options.name)) return options;
    options.provider = cloud_of_numbers;
    auto provider = session.provider(options.provider);
    if (!provider) {
        Error error = provider.error();
        error.hint += "; should a new machine be called '" + options.name + "', say where with --provider";
        return error;
    }
    auto machine = foreign_machine(**provider, options.name);
    if (!machine) return machine.error();
    if (options.dry_run)
        return Error{Error::Kind::usage,
                     "'" + options.name + "' exists: `tnr start` would take it over and let in a key",
                     "leave --dry-run out to do so; it costs what it costs already, " + price_text(machine->price)};
    auto taken = take_over(session, **provider, *machine);
    return taken ? Result<StartOptions>{std::move(options)} : Result<StartOptions>{taken.error()};
}

}  // namespace tnr::cli
