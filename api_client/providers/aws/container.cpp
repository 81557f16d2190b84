// https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
#include "api_client/providers/aws/container.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "api_client/http/json_api.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::aws {
namespace {

// It is on this computer, or a hop away.
constexpr http::Limits container_limits = {.connect_ms = 1000, .total_ms = 2000, .tries_max = 3};
constexpr const char* ecs_address = "http://169.254.170.2";
constexpr std::array<std::string_view, 3> addresses_beside_containers = {"169.254.170.2", "169.254.170.23",
                                                                         "[fd00:ec2::23]"};

Error no_keys(const std::string& why) {
    return Error{Error::Kind::auth, "no keys come from this container's role at AWS: " + why,
                 "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI names the service that has them; `tnr login aws` "
                 "takes others"};
}

// Read anew each time: where it is in a file, it is renewed there.
Result<std::string> container_token(const CloudWorld& world) {
    const std::string file = world.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (file.empty()) return stripped(world.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
    std::string token = stripped(small_file(file));
    if (token.empty()) return no_keys("there is no token in " + file);
    return token;
}

}  // namespace

bool may_tell_container_token(const std::string& url) {
    if (http::check_endpoint(url)) return true;
    constexpr std::string_view plain = "http://";
    if (!url.starts_with(plain)) return false;
    const std::string_view rest = std::string_view(url).substr(plain.size());
    return std::any_of(addresses_beside_containers.begin(), addresses_beside_containers.end(), [&](auto address) {
        if (!rest.starts_with(address)) return false;
        const std::string_view port = rest.substr(address.size(), rest.find('/') - address.size());
        return port.empty() || (port[0] == ':' && port.find_first_not_of("0123456789", 1) == std::string_view::npos);
    });
}

std::optional<Credentials> container_credentials(const CloudWorld& world) {
    const std::string relative = world.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
                      full = world.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (relative.empty() && full.empty()) return std::nullopt;
    const std::string slash = relative.starts_with('/') ? "" : "/";
    return Credentials{{{"container", relative.empty() ? full : ecs_address + slash + relative}},
                       "the role of this container"};
}

Result<Keys> keys_from_container(const Credentials& credentials, const CloudWorld& world) {
    const std::string& url = credentials.values.at("container");
    if (!may_tell_container_token(url))
        return no_keys("'" + url + "' may not be asked: it takes https, or an address of this computer's own");
    auto token = container_token(world);
    if (!token) return token.error();
    http::Client client(world.http, container_limits);
    client.hide(*token);
    http::Request request{.url = url, .repeatable = true, .brings_secrets = true, .own_network = true};
    if (!token->empty()) request.headers.push_back("Authorization: " + *token);
    auto reply = client.send(request);
    if (!reply) return reply.error();
    if (!reply->ok()) return no_keys("it refuses with status " + std::to_string(reply->status));
    return http::understood("the service beside this container", [&]() -> Result<Keys> {
        const http::Json body = http::parse_json(reply->body);
        return Keys{body.at("AccessKeyId"), body.at("SecretAccessKey"), body.at("Token")};
    });
}

}  // namespace tnr::aws
