// `tnr ssh-config`: the user's own ssh, scp, rsync and editors get to machines by name.
#include "cli/ssh_config.hpp"

#include "api_client/base/interrupt.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/target.hpp"

namespace tnr::cli {
namespace {

struct SshConfigOptions {
    std::string name;
    bool write = false, remove = false;
};

struct SshHost {
    Record record;
    Machine machine;
};

struct Hosts {
    std::vector<SshHost> found;
    std::vector<Trouble> troubles;
};

Hosts look_for_hosts(Session& session, const std::string& name) {
    Hosts hosts;
    std::vector<std::string> names;
    for (const auto& record : session.records().all().records)
        if (record.step >= Step::ordered) names.push_back(record.name);
    if (!name.empty()) names = {name};
    ui::Progress progress(session.screen());
    for (const auto& each : names) {
        progress.begin("asking about '" + each + "'", asking_patience);
        auto known = find_machine(session, each);
        if (known && known->record.host_key.empty())
            hosts.troubles.push_back(
                {each, Error{Error::Kind::remote, "nobody has been on '" + each + "' yet, so its host key is not known",
                             "`tnr start " + each + "` continues"}});
        else if (known && !known->machine.address.empty())
            hosts.found.push_back({known->record, known->machine});
        else if (known)
            hosts.troubles.push_back(
                {each, Error{Error::Kind::remote,
                             "'" + each + "' is " + to_string(known->machine.state) + " and has no address now",
                             "`tnr start " + each + "` starts it"}});
        else
            hosts.troubles.push_back({each, known.error()});
        if (interrupt::interrupted()) break;
    }
    progress.end();
    return hosts;
}

nlohmann::json host_json(Session& session, const SshHost& host) {
    return {{"name", host.record.name},
            {"address", host.machine.address},
            {"port", host.machine.ssh_port},
            {"user", host.machine.user.empty() ? login_user : host.machine.user},
            {"identity_file", login_key_path(session.config_folder, host.record)},
            {"known_hosts", "tnr-" + host.record.name + " " + host.record.host_key}};
}

Result<> write_hosts(Session& session, const Hosts& hosts) {
    SshConfig config(session);
    if (auto included = config.include(); !included) return included;
    for (const auto& host : hosts.found)
        if (auto put = config.put(host.record, host.machine); !put) return put;
    return Ok{};
}

// What is printed without --write must work without it, so the pinned key has to be in a file already.
Result<> ssh_config(Session& session, const SshConfigOptions& options) {
    SshConfig config(session);
    auto written = [&](const std::vector<Trouble>& troubles, const nlohmann::json& list) {
        return finish(session, "ssh-config",
                      {{"hosts", list}, {"written", options.write ? nlohmann::json(config.user_file()) : nullptr}},
                      troubles);
    };
    if (options.remove) {
        if (auto removed = config.remove_all(); !removed) return removed;
        if (!session.json) session.out << "Took our line out of " << config.user_file() << "\n";
        return written({}, nlohmann::json::array());
    }
    auto hosts = look_for_hosts(session, options.name);
    if (options.write)
        if (auto done = write_hosts(session, hosts); !done) return done;
    auto list = nlohmann::json::array();
    for (const auto& host : hosts.found) {
        list.push_back(host_json(session, host));
        if (session.json) continue;
        if (!options.write) session.out << ssh_host_block(session, host.record, host.machine) << "\n";
        if (options.write) session.out << "ssh " << host.record.name << "\n";
    }
    if (options.write && !session.json)
        session.err << config.user_file() << " includes your machines; `tnr start` and `tnr delete` keep them true\n";
    if (!options.write && !config.written() && !session.json)
        session.err << "note: the keys that ssh shall accept are written by `tnr ssh-config --write` alone\n";
    return written(hosts.troubles, list);
}

}  // namespace

void add_ssh_config(Grammar& tnr, Session& session) {
    auto options = std::make_shared<SshConfigOptions>();
    auto command = tnr.command("ssh-config", "Make plain ssh, scp, rsync and editors reach machines by name");
    command.option("name", options->name, "Only this machine; all unless told");
    command.flag("--write", options->write, "Include them in ~/.ssh/config, and keep them there up to date");
    command.flag("--remove", options->remove, "Take them out of ~/.ssh/config again");
    command.footer(
        "Each machine is pinned to the host key that tnr planted: ssh asks nothing and trusts nobody else.\n\n"
        "Examples:\n"
        "  tnr ssh-config                 show what --write would include\n"
        "  tnr ssh-config --write         and then: ssh demo; rsync -a src demo:; VS Code: Remote-SSH to demo\n"
        "  tnr ssh-config --remove");
    command.run([&session, options] { session.result = ssh_config(session, *options); });
}

}  // namespace tnr::cli
