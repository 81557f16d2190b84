// Which clouds there are, how one signs in to them, and how their drivers are made.
//
// To add a cloud: write providers/<name>.cpp, which defines a `const Cloud name_cloud`; name it in the list in
// providers/providers.cpp; write a mock of it and its test in tests/api_client/clouds/. Nothing else knows clouds by name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/http/http.hpp"
#include "api_client/provider.hpp"

namespace tnr {

// What drivers get from outside.
struct CloudWorld {
    http::Surroundings http = {};
    std::function<std::string(const std::string& name)> variable = {};  // of the environment; empty: not set
    std::string home = {};                                              // where the clouds' own tools keep their files
    std::string cache_folder = {};                                      // may be emptied at any time
    std::function<std::string()> now = {};                              // UTC, ISO 8601
    http::Limits limits = {};
};
// The real one. `pause` as in http::Surroundings.
CloudWorld real_world(std::function<bool(int)> pause, std::function<std::string()> now);

struct Credentials {
    std::map<std::string, std::string> values = {};  // by Cloud::Secret::name
    std::string source = {};                         // "HCLOUD_TOKEN", "~/.config/hcloud/cli.toml", "tnr login"
};

struct Cloud {
    struct Secret {
        std::string name;  // "token"
        std::string what;  // "API token", asked for by `tnr login`
        bool optional = false;
        bool file = false;  // a file's text: on a terminal its path is asked for, else all of stdin is it
    };
    std::string name;
    std::vector<Secret> secrets = {};  // none: no sign-in is needed
    std::string where_to_get = {};     // where its users make them
    std::string sources = {};          // what `standard` looks at, for --help and errors
    // Credentials that the cloud's own tools would use, from their variables and files; nothing where there are none.
    std::function<std::optional<Credentials>(const CloudWorld&)> standard = {};
    // What is left where neither these are nor `tnr login` has stored any: the identity of the machine that tnr runs on.
    std::function<std::optional<Credentials>(const CloudWorld&)> ambient = {};
    std::function<std::unique_ptr<Provider>(const Credentials&, const CloudWorld&)> make = {};
};

// In the order `--help` shows them.
const std::vector<Cloud>& clouds();
// An Error of kind usage names those there are.
Result<Cloud> find_cloud(const std::string& name);
std::vector<std::string> provider_names();

}  // namespace tnr
