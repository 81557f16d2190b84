// `tnr ports`: which TCP ports of a machine its cloud's firewall lets in, beside SSH.
#include <algorithm>
#include <charconv>

#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"

namespace tnr::cli {
namespace {

struct PortsOptions {
    std::string name;
    std::vector<std::string> words;  // "open 80 443"
};

constexpr int ssh_port = 22;
constexpr size_t ports_max = 32;  // clouds allow 50 rules and more for each firewall

Result<int> port_number(const std::string& text) {
    int port = 0;
    auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), port);
    bool good = problem == std::errc{} && end == text.data() + text.size() && port >= 1 && port <= 65535;
    if (!good) return Error{Error::Kind::usage, "'" + text + "' is no port", "a port is a number from 1 to 65535"};
    if (port == ssh_port)
        return Error{Error::Kind::usage, "port 22 is SSH's, which is always open: tnr itself gets in by it"};
    return port;
}

// The ports that shall be open from now on; nothing where the words ask for no change.
Result<std::optional<std::vector<int>>> wished_ports(const std::vector<std::string>& words, std::vector<int> ports) {
    using Wish = std::optional<std::vector<int>>;
    if (words.empty()) return Wish{};
    bool opens = words[0] == "open";
    if ((!opens && words[0] != "close") || words.size() < 2)
        return Error{Error::Kind::usage, "`tnr ports` does not understand '" + words[0] + "'",
                     "`tnr ports NAME open PORT…` or `tnr ports NAME close PORT…`"};
    for (size_t i = 1; i < words.size(); ++i) {
        auto port = port_number(words[i]);
        if (!port) return port.error();
        std::erase(ports, *port);
        if (opens) ports.push_back(*port);
    }
    if (ports.size() > ports_max)
        return Error{Error::Kind::usage, "at most " + std::to_string(ports_max) + " ports can be open"};
    std::sort(ports.begin(), ports.end());
    return Wish{ports};
}

void tell_ports(Session& session, const Record& record) {
    std::string list = "22 (SSH)";
    for (int port : record.open_ports) list += ", " + std::to_string(port);
    if (session.json)
        print_document(session, "ports",
                       {{"name", record.name}, {"provider", record.provider}, {"ports", record.open_ports}});
    else
        session.out << "'" << record.name << "' can be reached at: " << list << "\n";
}

Result<> ports(Session& session, const PortsOptions& options) {
    if (auto good = check_machine_name(options.name); !good) return good;
    auto lock = session.records().lock(options.name);
    if (!lock) return lock.error();
    auto known = find_machine(session, options.name);
    if (!known) return known.error();
    Record& record = known->record;
    auto wished = wished_ports(options.words, record.open_ports);
    if (!wished) return wished.error();
    if (*wished) {
        ui::Progress progress(session.screen());
        progress.begin("telling the firewall", asking_patience);
        auto set = known->provider->open_ports(known->machine.id, **wished);
        if (!set && set.error().hint.empty())
            return Error{set.error().kind, set.error().what,
                         "a port of it here: `tnr connect " + record.name + " -L PORT`"};
        if (!set) return set;
        progress.end();
        record.open_ports = **wished;
        if (auto saved = session.records().save(record); !saved) return saved;
    }
    tell_ports(session, record);
    return Ok{};
}

}  // namespace

void add_ports(Grammar& tnr, Session& session) {
    auto options = std::make_shared<PortsOptions>();
    auto command = tnr.command("ports", "Show, open and close ports of a machine to everybody");
    command.required("name", options->name, "The machine, as `tnr status` shows it");
    command.words("change", options->words, "`open PORT…` or `close PORT…`; shows what is open unless told");
    command.footer(
        "What is open is open to the whole Internet. For yourself alone, forward a port instead: tnr connect demo -L "
        "PORT.\n"
        "SSH is always open. A machine that is made anew has no other port open.\n\n"
        "Examples:\n  tnr ports demo\n  tnr ports demo open 80 443\n  tnr ports demo close 80");
    command.run([&session, options] { session.result = ports(session, *options); });
}

}  // namespace tnr::cli
