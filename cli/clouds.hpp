// Signing in to clouds: ~/.config/tnr/clouds.json, 0600. What the cloud's own variables and files say comes first.
#pragma once

#include <optional>
#include <string>

#include "api_client/cloud.hpp"

namespace tnr::cli {

struct Session;

class CloudLogins {
public:
    explicit CloudLogins(std::string path) : path_(std::move(path)) {}
    // What `tnr login` stored for a cloud.
    Result<std::optional<Credentials>> find(const std::string& cloud) const;
    Result<> save(const std::string& cloud, const Credentials& credentials);
    Result<> remove(const std::string& cloud);  // succeeds when there is none

private:
    std::string path_;
};

// Nothing when nobody is signed in there.
Result<std::optional<Credentials>> credentials_for(Session& session, const Cloud& cloud);
// A driver with these credentials, which are not asked about.
std::unique_ptr<Provider> open_with(Session& session, const Cloud& cloud, const Credentials& credentials);
// By name, signed in; else an Error of kind auth that says how to sign in.
Result<std::unique_ptr<Provider>> open_provider(Session& session, const std::string& name);

}  // namespace tnr::cli
