// Reading and writing clouds.json; whose credentials count.
#include "cli/clouds.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api_client/base/files.hpp"
#include "api_client/base/text.hpp"
#include "cli/session.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

using CloudsJson = nlohmann::json;

Result<CloudsJson> stored_clouds(const std::string& path) {
    if (!file_exists(path)) return CloudsJson::object();
    auto text = read_file(path);
    if (!text) return text.error();
    CloudsJson json = CloudsJson::parse(*text, nullptr, false);
    if (json.is_object()) return json;
    return Error{Error::Kind::internal, path + " is damaged", "remove it and run `tnr login PROVIDER` again"};
}

// `change` answers whether there is anything to write.
Result<> change_clouds(const std::string& path, const std::function<bool(CloudsJson&)>& change) {
    return change_file(path, [&]() -> Result<> {
        auto all = stored_clouds(path);
        if (!all) return all.error();
        return change(*all) ? write_file(path, all->dump(2) + "\n", 0600) : Result<>{Ok{}};
    });
}

bool has_all(const Credentials& credentials, const Cloud& cloud) {
    return std::all_of(cloud.secrets.begin(), cloud.secrets.end(), [&](const Cloud::Secret& secret) {
        return secret.optional || credentials.values.count(secret.name);
    });
}

}  // namespace

Result<std::optional<Credentials>> CloudLogins::find(const std::string& cloud) const {
    auto all = stored_clouds(path_);
    if (!all) return all.error();
    if (!all->contains(cloud) || !(*all)[cloud].is_object()) return std::optional<Credentials>{};
    Credentials credentials{.source = "`tnr login " + cloud + "`"};
    for (const auto& [name, value] : (*all)[cloud].items())
        if (value.is_string()) credentials.values[name] = value;
    return std::optional<Credentials>{credentials};
}

Result<> CloudLogins::save(const std::string& cloud, const Credentials& credentials) {
    return change_clouds(path_, [&](CloudsJson& all) {
        all[cloud] = credentials.values;
        return true;
    });
}

Result<> CloudLogins::remove(const std::string& cloud) {
    return change_clouds(path_, [&](CloudsJson& all) { return all.erase(cloud) > 0; });
}

Result<std::optional<Credentials>> credentials_for(Session& session, const Cloud& cloud) {
    if (cloud.secrets.empty()) return std::optional<Credentials>{Credentials{}};
    if (auto standard = cloud.standard(session.world)) return standard;
    auto stored = session.cloud_logins().find(cloud.name);
    if (!stored) return stored;
    if (*stored && has_all(**stored, cloud)) return stored;
    return cloud.ambient ? cloud.ambient(session.world) : std::nullopt;
}

std::unique_ptr<Provider> open_with(Session& session, const Cloud& cloud, const Credentials& credentials) {
    CloudWorld world = session.world;
    if (session.explain)
        world.http.explain = [&session](const std::string& line) { session.err << ui::plain(line) << "\n"; };
    return cloud.make(credentials, world);
}

Result<std::unique_ptr<Provider>> open_provider(Session& session, const std::string& name) {
    auto cloud = find_cloud(name);
    if (!cloud)
        return Error{cloud.error().kind, cloud.error().what, did_you_mean(name, provider_names()) + cloud.error().hint};
    auto credentials = credentials_for(session, *cloud);
    if (!credentials) return credentials.error();
    if (*credentials) return open_with(session, *cloud, **credentials);
    return Error{Error::Kind::auth, "you are not signed in to " + name,
                 "run `tnr login " + name + "`, or set what it is known by: " + cloud->sources};
}

}  // namespace tnr::cli
