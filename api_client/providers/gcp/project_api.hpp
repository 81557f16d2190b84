// Requests to Google's APIs on behalf of one project, and the operations that carry them out.
#pragma once

#include "api_client/http/json_api.hpp"
#include "api_client/providers/gcp/account.hpp"

namespace tnr::gcp {

// "…/zones/us-central1-a" is "us-central1-a".
std::string last_part(const std::string& url);

class ProjectApi {
public:
    // `account` outlives it.
    ProjectApi(Account& account, const CloudWorld& world);

    // `rest` is below the project: "/zones/…". What a request has begun is an operation: wait() for it.
    Result<http::Json> call(const std::string& method, const std::string& rest, const http::Json& body = {},
                            bool repeatable = false);
    // The list named so of all pages.
    Result<std::vector<http::Json>> all(const std::string& rest, const std::string& list);
    // Begins what may be asked for twice, and waits for it.
    Result<> act(const std::string& rest, const http::Json& body = {});
    // What is not there counts as removed.
    Result<> remove(const std::string& rest);
    // Until the operation has ended, and how.
    Result<> wait(http::Json operation);

    // Why the last call() or wait() failed, in Google's words for programs ("alreadyExists"); empty where it did not.
    const std::string& code() const { return code_; }
    // It failed for want of room in the zone.
    bool sold_out() const;

    // Each kept for a day.
    Result<http::JsonApi::Dated> machine_types();
    Result<http::JsonApi::Dated> rates();

private:
    http::JsonApi::Settings settings(const std::string& variable, const std::string& standard) const;
    Error reworded(Error error, const std::string& project) const;

    Account& account_;
    CloudWorld world_;
    http::JsonApi compute_, billing_;
    std::string code_;
};

}  // namespace tnr::gcp
