// Requests to Azure's resource manager on behalf of one subscription, and the operations that it ends later.
#pragma once

#include "api_client/http/json_api.hpp"
#include "api_client/providers/azure/identity.hpp"

namespace tnr::azure {

class ArmApi {
public:
    // `identity` outlives it.
    ArmApi(Identity& identity, const CloudWorld& world);

    // `rest` is below the subscription, "/resourceGroups/…", without the API's version.
    Result<http::Json> get(const std::string& rest);
    // All pages.
    Result<std::vector<http::Json>> list(const std::string& rest);
    // What is begun, and its end waited for; POST only for what may be done twice.
    Result<http::Json> act(const std::string& method, const std::string& rest, const http::Json& body = {});

    // The variable's, the profile's, or the only one that we may see.
    Result<std::string> subscription();
    // "/subscriptions/ID" + rest, as bodies name resources.
    Result<std::string> id_of(const std::string& rest);

    // Why the last request or operation failed, in Azure's words for programs ("SkuNotAvailable"); empty where it did not.
    const std::string& code() const { return code_; }
    bool sold_out() const;

    // Kept for a day.
    Result<http::JsonApi::Dated> daily(const std::string& name, const std::function<Result<http::Json>()>& ask);

private:
    Result<http::Reply> call(const std::string& method, const std::string& path, const http::Json& body = {});
    Result<http::Json> accepted(const Result<http::Reply>& reply);
    // The path of a whole address that Azure has sent us to; nothing where it is at another host, which gets no token.
    Result<std::string> path_of(const std::string& address) const;
    Result<> wait(const std::string& path, const http::Reply& begun);
    Error failed(const http::Json& error);
    Error reworded(Error error) const;

    Identity& identity_;
    CloudWorld world_;
    std::string base_, subscription_, code_;
    http::JsonApi api_;
};

}  // namespace tnr::azure
