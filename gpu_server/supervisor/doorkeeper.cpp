// See doorkeeper.hpp.
#include "gpu_server/supervisor/doorkeeper.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/asker.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

// Keys have no spaces, and neither have names (is_name()).
std::string Admitted::text() const {
    auto number = std::to_string(socket);
    return public_key.empty() ? number : number + " " + public_key + " " + account + (crowded ? " crowded" : "");
}

Admitted Admitted::parse(const std::string& text) {
    Admitted peer;
    std::string crowded;
    std::istringstream(text) >> peer.socket >> peer.public_key >> peer.account >> crowded;
    peer.crowded = !crowded.empty();
    return peer;
}

static ConnectionLimits connection_limits() {
    return {unproven_per_source_max, unproven_per_second_max,       unproven_burst,
            connections_per_key_max, connections_per_account_max,   connections_told_max,
            unproven_left_alone_for, unproven_per_second_known_max, address_known_for};
}

// ZeroMQ notices, and closes it.
static void cut_connection(int descriptor) {
    (void)shutdown(descriptor, SHUT_RDWR);
}

Doorkeeper::Doorkeeper(bool plain, Store& store, AuditLog& audit, ServerKeys& keys, const NodeKeys& nodes)
    : plain_(plain),
      store_(store),
      audit_(audit),
      keys_(keys),
      nodes_(nodes),
      connections_(connection_limits(), cut_connection) {
    hooks_.hint = this;
    hooks_.accepted = [](void* self, int descriptor, const char* address) -> int {
        return static_cast<Doorkeeper*>(self)->accepted(descriptor, address);
    };
    hooks_.closed = [](void* self, int descriptor) { static_cast<Doorkeeper*>(self)->connections_.closed(descriptor); };
    hooks_.curve_secret_keys = [](void* self, unsigned char(*keys)[32], int keys_max) {
        return static_cast<Doorkeeper*>(self)->secrets(keys, keys_max);
    };
}

bool Doorkeeper::accepted(int descriptor, const std::string& address) {
    auto source = source_of(address);
    const auto place = connections_.accepted(descriptor, source);
    if (place == Connections::Place::free) return true;
    audit_.note(source, {AuditEntry::Kind::refused, "a stranger",
                         "a connection: too many from there that have proven no key", address});
    auto now = std::chrono::steady_clock::now();
    if (auto told = told_.load(); told == decltype(told){} || now - told >= refusals_told_every) {
        told_ = now;
        log(LogLevel::warning,
            "connections from " + printable(address) + " are closed: too many of them that have proven no key");
    }
    return place == Connections::Place::of_another;
}

int Doorkeeper::secrets(unsigned char (*keys)[32], int keys_max) const {
    auto secrets = keys_.secrets();
    int count = std::min(keys_max, static_cast<int>(secrets.size()));
    for (int i = 0; i < count; ++i) std::memcpy(keys[i], secrets[static_cast<size_t>(i)].data(), sizeof keys[i]);
    return count;
}

void Doorkeeper::refused(const Knock& knock, const std::string& what) {
    audit_.note(
        source_of(knock.address),
        {AuditEntry::Kind::refused, knock.plain ? "a stranger" : "key " + knock.public_key, what, knock.address});
}

Admission Doorkeeper::refusal(const Knock& knock, const std::string& why) {
    refused(knock, "a connection: " + why);
    return Admission{std::nullopt, why};
}

Admission Doorkeeper::let_in(const Knock& knock, const std::string& account) {
    auto room = connections_.proven(knock.connection, knock.public_key, account);
    if (room == Connections::Room::none) return refusal(knock, "too many connections of the key");
    const bool crowded = room == Connections::Room::crowded;
    return Admission{Admitted{socket_number(knock.connection), knock.public_key, account, crowded}.text()};
}

Admission Doorkeeper::admit(const Knock& knock) {
    auto no = [&](const std::string& why) { return refusal(knock, why); };
    if (plain_ || knock.plain) {
        if (!plain_ || !knock.plain || !knock.from_loopback()) return no("plain text");
        connections_.proven(knock.connection, "", "");
        return Admission{Admitted{socket_number(knock.connection), {}, {}}.text()};
    }
    // First: everybody knows the nodes' public keys, and may have enrolled one as a machine's.
    if (auto node = nodes_.find(knock.public_key)) return let_in(knock, node_account(*node));
    auto owner = store_.find_key(knock.public_key);
    if (!owner) log(LogLevel::error, owner.error().what);
    if (!owner) return no("the store of keys cannot be read");
    if (*owner) return let_in(knock, (*owner)->account);
    return no("unknown key");
}

}  // namespace tnr::server
