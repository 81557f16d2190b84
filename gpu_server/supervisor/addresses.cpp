// See addresses.hpp.
#include "gpu_server/supervisor/addresses.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/supervisor/request.hpp"

namespace tnr::server {
namespace {

Error usage(const std::string& what, const std::string& hint) {
    return {Error::Kind::usage, what, hint};
}

// As clients are told of it: only they can tell whether it leads here. Colons are an IPv6 address's.
bool looks_like_host(const std::string& text) {
    in6_addr address;
    const bool has_colon = text.find(':') != std::string::npos;
    return text.find_first_of(" \t\r\n/@'\"[]") == std::string::npos &&
           (!has_colon || inet_pton(AF_INET6, text.c_str(), &address) == 1);
}

Result<> check_control_address(const ServeOptions& options, const Endpoint& listen) {
    if (options.control_address.empty()) {
        if (options.store.empty() || !listen.wildcard()) return Ok{};
        return usage("other nodes have to tell clients where this one is, and it listens everywhere",
                     "say how clients reach it: --control-address tcp://HOST:" + std::to_string(listen.port));
    }
    auto told = parse_endpoint(options.control_address);
    if (!told) return usage("--control-address: " + told.error().what, told.error().hint);
    if (!leads_somewhere(*told))
        return usage("--control-address " + options.control_address + " is where clients are sent, and leads nowhere",
                     "it looks like tcp://gpu-1.example.org:14900");
    return Ok{};
}

Result<> check_workers_addresses(const ServeOptions& options) {
    const Endpoint told{options.worker_address, 0};
    if (!options.worker_address.empty() && (told.wildcard() || !looks_like_host(told.host)))
        return usage("--worker-address '" + options.worker_address + "' is no host that clients could reach",
                     "a name or an address, without a port or brackets: gpu-1.example.org");
    if (options.worker_bind.empty()) return Ok{};
    Endpoint bound;
    if (auto socket = bind_to(options.worker_bind, 0, bound); !socket)
        return usage("--worker-bind: " + socket.error().what, "it is an address of this host, without a port");
    return Ok{};
}

}  // namespace

bool leads_somewhere(const Endpoint& told) {
    return !told.wildcard() && told.port != 0 && looks_like_host(told.host);
}

std::string node_name(const ServeOptions& options) {
    if (!options.node.empty()) return options.node;
    if (!options.name.empty()) return options.name;
    char host[control::name_bytes_max + 1] = "";
    gethostname(host, sizeof host - 1);
    return host;
}

Result<> check_addresses(const ServeOptions& options) {
    auto listen = parse_endpoint(options.listen);
    if (!listen) return listen.error();
    if (options.plain && !listen->loopback())
        return usage("plain text is for loopback only, and " + options.listen + " is not",
                     "leave --plain away: clients then need a key, see tnr-gpu-server user add --help");
    if (auto name = node_name(options); !is_name(name))
        return usage("'" + name + "' is no name for a node",
                     "letters, digits, '-', '_' and '.', at most 64: --node NAME");
    if (auto control = check_control_address(options, *listen); !control) return control;
    return check_workers_addresses(options);
}

}  // namespace tnr::server
