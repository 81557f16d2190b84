// What must not be guessed: CURVE keys, in ZeroMQ's z85 spelling (40 characters), and ids.
#pragma once

#include <string>

namespace tnr::wire {

struct KeyPair {
    std::string public_key;
    std::string secret_key;
};

// What a client needs to reach a server. Both empty: plain text, which servers accept on loopback only.
struct ClientKeys {
    std::string server_public;
    KeyPair own;
    bool plain() const { return server_public.empty(); }
};

// Before a secret key that is an enrolment token: it opens the pool's door once, to be traded for a key of one's own.
inline constexpr const char* token_prefix = "token:";

KeyPair make_key_pair();
bool looks_like_key(const std::string& z85);  // 40 characters of the z85 alphabet
// The public half of a secret key; empty when it is none.
std::string public_of(const std::string& secret_key);

// 128 random bits as 32 hexadecimal digits. Any thread.
std::string random_id();

}  // namespace tnr::wire
