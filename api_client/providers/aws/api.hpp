// Requests to AWS: signed, repeated where AWS asks for patience, refusals as Errors.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api_client/cloud.hpp"
#include "api_client/providers/aws/keys.hpp"
#include "api_client/providers/aws/profiles.hpp"
#include "api_client/providers/aws/xml.hpp"

namespace tnr::aws {

using Parameters = std::vector<std::pair<std::string, std::string>>;

// A request of the query protocol: a form there, XML back.
struct Call {
    std::string service = "ec2";  // the name that it is signed for
    std::string region = {};
    std::string action = {};
    Parameters parameters = {};
    // Doing it twice is the same as doing it once.
    bool repeatable = true;
};

struct Refusal {
    std::string code = {};  // "InvalidInstanceID.NotFound"; empty: AWS did not refuse
    std::string words = {};
    int status = 0;
    std::string request_id = {};
    std::string date = {};  // AWS's clock, as in HTTP
};

// Not thread-safe: other threads get a sibling().
class Api {
public:
    Api(Credentials credentials, const CloudWorld& world);

    // The region that the user has configured, or the one that this machine is in.
    Result<std::string> home();

    // A refusal is not an Error here: the caller wants to know its code.
    struct Reply {
        Xml body = {};
        Refusal refusal = {};
        bool ok() const { return refusal.code.empty(); }
    };
    Result<Reply> ask(const Call& call);
    // A refusal as its Error.
    Result<Xml> get(const Call& call);
    // All items of a list that comes in pages. They live as long as the pages.
    struct Listed {
        std::vector<Xml> pages = {};
        std::vector<pugi::xml_node> items = {};
    };
    Result<Listed> list(const Call& call, const char* path);
    // Of the services that speak JSON. `target`: "AWSPriceListService.GetProducts".
    Result<nlohmann::json> json(const std::string& service, const std::string& target, const nlohmann::json& body);

    Error refused(const Refusal& refusal) const;

    std::string endpoint(const std::string& service, const std::string& region) const;
    // With the keys that this one has found; `world` for another thread.
    Result<Api> sibling(const CloudWorld& world);

private:
    Api(const Api& other, const Keys& keys, const CloudWorld& world);
    Result<Keys> keys();
    Result<Reply> ask_with(const Keys& keys, const Call& call);
    // `own`: with which keys; none: `call` says in another way who asks.
    Result<Keys> take_role(const Keys& own, const Role& role, Call call);
    Result<Keys> take_role_by_token(const std::string& file, const Role& role);

    Credentials credentials_;
    CloudWorld world_;
    std::string configured_region_;
    std::map<std::string, std::string> endpoints_;
    std::optional<Keys> keys_;
    http::Client client_;
};

// In a refusal's code.
bool is_not_found(const std::string& code);

}  // namespace tnr::aws
