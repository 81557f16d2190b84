// The server's own folder: its key pair, the database, and where it listened last. Nobody else may look inside.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/store.hpp"

namespace tnr::server {

class StateFolder {
public:
    // Makes it, mode 0700. `path` empty: $XDG_STATE_HOME/tnr/server, else ~/.local/state/tnr/server.
    static Result<StateFolder> open(const std::string& path);

    // Where that is, or would be.
    static std::filesystem::path place(const std::string& path);

    // The one that is there; kind usage when there is none.
    static Result<StateFolder> find(const std::string& path);

    const std::filesystem::path& path() const { return path_; }
    std::string database() const { return path_ / "pool.db"; }
    // An error where a server has served and its database is gone or empty: whoever opens it would begin anew without a word.
    Result<> check_database() const;
    std::filesystem::path images() const { return path_ / "images"; }

    // Which folder this is, whatever else changes in it: random, made at the first call ever.
    Result<std::string> identity() const;
    // Made before a server serves with it; the secret half is in server.key, mode 0600.
    Result<wire::KeyPair> server_keys() const;
    // Never made: for a server that has had one. Another would lock out everybody whose programs run.
    Result<wire::KeyPair> kept_server_keys() const;
    // Whether there are none, and no server has served with any.
    bool may_make_keys() const;
    // The pair before it, until a time, while clients learn of the new one: server.key.old. Nothing when there is none.
    struct OldKey {
        wire::KeyPair keys;
        int64_t until_ms = 0;  // since 1970
    };
    Result<std::optional<OldKey>> old_server_key() const;
    // Held while keys are changed, also by server_keys() where it makes the first ones: of two commands at once the second sees
    // what the first has done. Waits.
    Result<UniqueFd> lock_keys() const;
    // A new pair; today's is the old one until then, in place of any earlier. Complete or not at all.
    Result<> rotate_server_key(int64_t old_until_ms) const;
    Result<> drop_old_server_key() const;  // succeeds when there is none

    // The address `serve` listened on last, empty when it never ran, and whether without keys.
    std::string last_address() const;
    bool last_was_plain() const;
    Result<> save_address(const std::string& address, bool plain) const;

    // What `serve --store` was given when it last reached its store: etcd://…; empty: the database.
    Result<std::string> shared_store() const;
    Result<> save_shared_store(const std::string& address) const;
    // The accounts, wherever they are kept; the second, where that is given (as `serve --store`).
    Result<std::unique_ptr<Store>> open_store() const;
    Result<std::unique_ptr<Store>> open_store(const std::string& shared) const;
    // Likewise the nodes, for the operator.
    Result<std::unique_ptr<NodeAdmin>> open_nodes() const;

    // Held while `serve` runs: two of them on one folder would end each other's claims. Kind usage when it is held, and still
    // is after `patience`.
    Result<UniqueFd> lock(std::chrono::milliseconds patience = {}) const;
    // Writes something there, and takes it away: whether its disk has room, and may be written.
    Result<> try_writing() const;

private:
    explicit StateFolder(std::filesystem::path path) : path_(std::move(path)) {}
    std::filesystem::path path_;
};

// Keys that no command line takes for an option: z85 has '-' among its characters.
wire::KeyPair make_pasteable_key_pair();

}  // namespace tnr::server
