// The pools this user may use: ~/.config/tnr/pool.json, 0600. The last one signed in to is the default. Keys for tokens that
// are being traded are in pool_tokens.json beside it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/pool.hpp"

namespace tnr::cli {

// The text of pool.json, from us or anybody else.
Result<std::vector<PoolLogin>> parse_logins(const std::string& text);

class Logins {
public:
    explicit Logins(std::string path) : path_(std::move(path)) {}

    Result<std::vector<PoolLogin>> all() const;  // oldest first; empty when there is no file
    Result<> save(const PoolLogin& login);       // replaces one of the same address, and becomes the default
    // The key pair that a token, known by its public half, is to be traded for. It is on the disk before anybody hears of it,
    // and the same one each time until forget_token(): whatever ends a sign-in midway, the next one with that token is done.
    Result<wire::KeyPair> key_for_token(const std::string& token);
    Result<> forget_token(const std::string& token);
    // The pool there has a new public key now; succeeds when we are not signed in to it.
    Result<> renew(const std::string& address, const std::string& server_public);
    // Which pool is there (PoolLogin::pool); likewise.
    Result<> note_pool(const std::string& address, const std::string& pool);
    Result<> remove(const std::string& address);  // succeeds when it is not there
    // By address, or the default when `address` is empty. Kind auth when there is none.
    Result<PoolLogin> find(const std::string& address) const;

private:
    // `changed` answers whether there is anything to write.
    Result<> change(const std::function<bool(std::vector<PoolLogin>&)>& changed);
    std::string tokens_path() const;

    std::string path_;
};

// "tcp://host:port" in its parts; an Error of kind usage names what is wrong.
struct Endpoint {
    std::string host;
    int port = 0;
    bool loopback() const;
};
Result<Endpoint> parse_endpoint(const std::string& address);

}  // namespace tnr::cli
