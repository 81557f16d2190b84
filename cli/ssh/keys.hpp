// Ed25519 key pairs in OpenSSH's formats. tnr makes two for each machine: the one that opens it, and its host key, planted through user data so that the very first connection is already authenticated.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::ssh {

// The seed is the secret: whoever holds it is the key's owner. Values of this type are copied freely; files
// that hold one are 0600.
struct KeyPair {
    std::array<uint8_t, 32> seed{};
    std::array<uint8_t, 32> public_key{};
};

Result<KeyPair> generate_key();
Result<KeyPair> key_from_seed(const std::array<uint8_t, 32>& seed);

// "ssh-ed25519 AAAA… comment", one line without its newline, as in authorized_keys.
std::string public_line(const KeyPair& key, const std::string& comment);
// The PEM text of an OpenSSH private key file, without a passphrase.
std::string private_file(const KeyPair& key, const std::string& comment);
// Reads what private_file() wrote, or ssh-keygen's own, as long as no passphrase protects it.
Result<KeyPair> parse_private_file(const std::string& text);

// The binary form that travels in the protocol ("blob"), and the same out of a public line.
std::string public_blob(const KeyPair& key);
Result<std::string> blob_of_line(const std::string& line);
std::string line_of_blob(const std::string& blob, const std::string& comment);
// "SHA256:…", as ssh-keygen -l shows it.
std::string fingerprint(const std::string& blob);

// The 64-byte signature of `data`.
Result<std::string> sign(const KeyPair& key, const std::string& data);

// The key at `path`; kind not_found when there is none, usage when others than its owner may read it.
Result<KeyPair> load_key(const std::string& path);
// The same; made, 0600, with its .pub beside it, when there is none.
Result<KeyPair> load_or_create_key(const std::string& path, const std::string& comment);

}  // namespace tnr::ssh
