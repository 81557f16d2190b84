// The rules are those of AWS's SDKs: https://docs.aws.amazon.com/sdkref/latest/guide/.
#include "api_client/providers/aws/profiles.hpp"

#include <algorithm>
#include <initializer_list>
#include <sstream>
#include <vector>

#include "api_client/providers/aws/container.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::aws {
namespace {

constexpr int sources_max = 5;  // of profiles that take a role with the keys of another one; circles end here

std::string lowered(std::string word) {
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    return word;
}

std::string first_set(const CloudWorld& world, std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (std::string value = world.variable(name); !value.empty()) return value;
    return "";
}

std::string at(const Section& section, const std::string& name) {
    auto found = section.find(name);
    return found == section.end() ? "" : found->second;
}

struct Files {
    std::map<std::string, Section> config, credentials;

    explicit Files(const CloudWorld& world) {
        auto read = [&](const char* variable, const char* name) {
            const std::string path = world.variable(variable);
            return sections_of(small_file(path.empty() ? world.home + "/.aws/" + name : path));
        };
        config = read("AWS_CONFIG_FILE", "config");
        credentials = read("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    }
    Section named(const std::string& kind, const std::string& name) const {
        auto found = config.find(kind + " " + name);
        return found == config.end() ? Section{} : found->second;
    }
    // What both files say of a profile; keys in `credentials` count.
    Section profile(const std::string& name) const {
        Section both;
        if (auto found = credentials.find(name); found != credentials.end()) both = found->second;
        Section more = named("profile", name);
        if (auto found = config.find("default"); name == "default" && found != config.end())
            more.merge(Section(found->second));
        both.merge(more);
        return both;
    }
};

std::string profile_name(const CloudWorld& world) {
    const std::string name = first_set(world, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
    return name.empty() ? "default" : name;
}

std::optional<Section> keys_in(const Section& profile) {
    if (at(profile, "aws_access_key_id").empty() || at(profile, "aws_secret_access_key").empty()) return std::nullopt;
    return Section{{"access_key_id", at(profile, "aws_access_key_id")},
                   {"secret_access_key", at(profile, "aws_secret_access_key")},
                   {"session_token", at(profile, "aws_session_token")}};
}

std::optional<Section> sso_in(const Files& files, Section profile) {
    if (const std::string session = at(profile, "sso_session"); !session.empty())
        profile.merge(files.named("sso-session", session));
    Section values;
    for (const char* name : {"sso_start_url", "sso_region", "sso_account_id", "sso_role_name"}) {
        values[name] = at(profile, name);
        if (values[name].empty()) return std::nullopt;
    }
    return values;
}

// Which member of Role each setting is.
constexpr std::pair<const char*, std::string Role::*> role_settings[] = {{"role_arn", &Role::arn},
                                                                         {"external_id", &Role::external_id},
                                                                         {"role_session_name", &Role::session_name},
                                                                         {"duration_seconds", &Role::duration_s},
                                                                         {"mfa_serial", &Role::mfa}};

std::string role_key(size_t number, const char* setting) {
    return "role." + std::to_string(number) + "." + setting;
}

void add_role(Section& values, const Section& profile) {
    const size_t number = roles_in({values}).size() + 1;
    for (const auto& [setting, member] : role_settings)
        if (std::string value = at(profile, setting); !value.empty()) values[role_key(number, setting)] = value;
}

std::optional<Section> values_of(const CloudWorld& world, const Files& files, const std::string& name, int depth) {
    const Section profile = files.profile(name);
    const auto own = keys_in(profile);
    if (depth > 0 && own) return own;  // another profile's role is taken with them
    if (!at(profile, "role_arn").empty()) {
        if (depth == sources_max) return std::nullopt;
        const std::string source = at(profile, "source_profile"), file = at(profile, "web_identity_token_file");
        std::optional<Section> base;
        if (source == name)  // the profile's own keys
            base = own;
        else if (!source.empty())
            base = values_of(world, files, source, depth + 1);
        else if (at(profile, "credential_source") == "Ec2InstanceMetadata")
            base = Section{{"metadata", "yes"}};
        else if (auto container = container_credentials(world);
                 container && at(profile, "credential_source") == "EcsContainer")
            base = container->values;
        else if (!file.empty())
            base = Section{{"web_identity_token_file", file}};
        if (base) add_role(*base, profile);
        return base;
    }
    if (auto values = sso_in(files, profile)) return values;
    if (own) return own;
    const std::string command = at(profile, "credential_process");
    return command.empty() ? std::nullopt : std::optional{Section{{"credential_process", command}}};
}

// What clusters and CI systems give the programs that they run.
std::optional<Section> web_identity_in(const CloudWorld& world) {
    const std::string file = world.variable("AWS_WEB_IDENTITY_TOKEN_FILE"), role = world.variable("AWS_ROLE_ARN");
    if (file.empty() || role.empty()) return std::nullopt;
    Section values{{"web_identity_token_file", file}};
    add_role(values, {{"role_arn", role}, {"role_session_name", world.variable("AWS_ROLE_SESSION_NAME")}});
    return values;
}

// Why a profile gives no keys, where it was meant to: one that is asked for by its name, or that takes a role. Nothing else
// may stand in for it, for that could be another account.
std::string why_unusable(const CloudWorld& world, const Files& files, const std::string& name) {
    const Section profile = files.profile(name);
    if (!at(profile, "role_arn").empty())
        return "takes a role, and neither its source_profile nor its credential_source has keys that tnr finds";
    if (!at(profile, "login_session").empty())
        return "has signed in by `aws login`, whose keys only AWS's own tools read; this line in a profile asks them: "
               "credential_process = aws configure export-credentials --profile " +
               name;
    if (first_set(world, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}).empty()) return "";
    return profile.empty() ? "does not exist" : "has no keys, sign-in page or program";
}

}  // namespace

std::vector<Role> roles_in(const Credentials& credentials) {
    std::vector<Role> roles;
    while (credentials.values.count(role_key(roles.size() + 1, "role_arn"))) {
        Role role;
        for (const auto& [setting, member] : role_settings)
            role.*member = at(credentials.values, role_key(roles.size() + 1, setting));
        roles.push_back(role);
    }
    return roles;
}

std::optional<Credentials> standard(const CloudWorld& world) {
    const std::string id = world.variable("AWS_ACCESS_KEY_ID"), secret = world.variable("AWS_SECRET_ACCESS_KEY");
    if (!id.empty() && !secret.empty())
        return Credentials{{{"access_key_id", id},
                            {"secret_access_key", secret},
                            {"session_token", world.variable("AWS_SESSION_TOKEN")}},
                           "AWS_ACCESS_KEY_ID"};
    const bool profile_asked_for = !first_set(world, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}).empty();
    if (auto values = web_identity_in(world); values && !profile_asked_for)
        return Credentials{*values, "AWS_WEB_IDENTITY_TOKEN_FILE"};
    const Files files(world);
    const std::string name = profile_name(world);
    auto values = values_of(world, files, name, 0);
    if (!values) {
        const std::string why = why_unusable(world, files, name);
        if (why.empty()) return std::nullopt;
        values = Section{{"unusable", why}};
    }
    (*values)["profile"] = name;
    return Credentials{*values, "profile " + name + " of ~/.aws"};
}

std::optional<Credentials> ambient(const CloudWorld& world) {
    if (auto container = container_credentials(world)) return container;
    if (lowered(world.variable("AWS_EC2_METADATA_DISABLED")) == "true") return std::nullopt;
    // Elsewhere the question would go unanswered, and the user would wait for that.
    if (world.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").empty() &&
        !small_file("/sys/class/dmi/id/sys_vendor").starts_with("Amazon EC2"))
        return std::nullopt;
    return Credentials{{{"metadata", "yes"}}, "the role of this machine"};
}

std::string configured_region(const Credentials& credentials, const CloudWorld& world) {
    if (std::string region = first_set(world, {"AWS_REGION", "AWS_DEFAULT_REGION"}); !region.empty()) return region;
    if (std::string region = at(credentials.values, "region"); !region.empty()) return region;
    return at(Files(world).profile(profile_name(world)), "region");
}

std::map<std::string, std::string> configured_endpoints(const CloudWorld& world) {
    std::map<std::string, std::string> endpoints;
    if (lowered(world.variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) == "true") return endpoints;
    const Files files(world);
    const Section profile = files.profile(profile_name(world));
    const Section services = files.named("services", at(profile, "services"));
    struct Service {
        const char *signed_for, *variable, *setting;
    };
    for (const Service& service :
         {Service{"ec2", "AWS_ENDPOINT_URL_EC2", "ec2"}, Service{"sts", "AWS_ENDPOINT_URL_STS", "sts"},
          Service{"pricing", "AWS_ENDPOINT_URL_PRICING", "pricing"},
          Service{"ce", "AWS_ENDPOINT_URL_COST_EXPLORER", "cost_explorer"},
          Service{"portal", "AWS_ENDPOINT_URL_SSO", "sso"}, Service{"oidc", "AWS_ENDPOINT_URL_SSO_OIDC", "sso_oidc"}}) {
        const std::string own_setting = at(services, std::string(service.setting) + ".endpoint_url");
        for (const std::string& url : {world.variable(service.variable), world.variable("AWS_ENDPOINT_URL"),
                                       own_setting, at(profile, "endpoint_url")}) {
            if (url.empty()) continue;
            endpoints[service.signed_for] = url.substr(0, url.find_last_not_of('/') + 1);
            break;
        }
    }
    return endpoints;
}

std::string endpoint_of(const std::map<std::string, std::string>& endpoints, const std::string& service,
                        const std::string& host, const std::string& region) {
    if (auto own = endpoints.find(service); own != endpoints.end()) return own->second;
    return "https://" + host + "." + region + ".amazonaws.com" + (region.starts_with("cn-") ? ".cn" : "");
}

}  // namespace tnr::aws
