// Who is let in: asked by ZeroMQ when a connection is accepted, when it says which of the server's keys it knows, and when
// it has proven a key of its own. Keeps count of all of them.
#pragma once

#include <zmq.h>

#include <atomic>
#include <string>

#include "gpu_server/pool/audit.hpp"
#include "gpu_server/pool/connections.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/pool/zap.hpp"
#include "gpu_server/supervisor/node_keys.hpp"
#include "gpu_server/supervisor/server_keys.hpp"

namespace tnr::server {

// What the socket is told of a peer, once it is in; travels as its user id.
struct Admitted {
    uint64_t socket = 0;          // of its connection (asker.hpp)
    std::string public_key = {};  // empty when plain
    std::string account = {};
    bool crowded = false;  // let in to be told that there are too many
    std::string text() const;
    static Admitted parse(const std::string& text);
};

class Doorkeeper {
public:
    // All must outlive the sockets that ask it.
    Doorkeeper(bool plain, Store& store, AuditLog& audit, ServerKeys& keys, const NodeKeys& nodes);

    // On Zap's thread.
    Admission admit(const Knock& knock);
    // What ZMQ_PEER_HOOKS wants; on ZeroMQ's thread.
    const zmq_peer_hooks_t* hooks() const { return &hooks_; }

private:
    Admission refusal(const Knock& knock, const std::string& why);
    Admission let_in(const Knock& knock, const std::string& account);
    bool accepted(int descriptor, const std::string& address);
    int secrets(unsigned char (*keys)[32], int keys_max) const;
    void refused(const Knock& knock, const std::string& what);

    const bool plain_;
    Store& store_;
    AuditLog& audit_;
    ServerKeys& keys_;
    const NodeKeys& nodes_;
    Connections connections_;
    zmq_peer_hooks_t hooks_{};
    std::atomic<std::chrono::steady_clock::time_point> told_{};  // of strangers' connections that were closed
};

}  // namespace tnr::server
