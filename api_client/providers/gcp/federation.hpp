// Credentials of others that Google takes: workload identity federation, and one identity on behalf of another.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "api_client/http/http.hpp"

namespace tnr::gcp {

struct Federation {
    http::Client& client;
    nlohmann::json key;   // the credentials' file; its secrets are hidden already
    std::string scope;    // what the token is for
    std::string sign_in;  // hint when the credentials are refused
};

// Of type external_account: the token that credential_source names, a file or an address, is exchanged at Google's STS, and
// where the file says so for one of a service account. Where the token would come from a program, from AWS or by a
// certificate, it is an Error of kind auth that names it.
Result<std::string> token_of_workload(const Federation& federation);

// Of type external_account_authorized_user, whom `gcloud auth application-default login --login-config` has signed in.
Result<std::string> token_of_workforce(const Federation& federation);

// One of the service account that service_account_impersonation_url of the file names, for a token that may ask for it.
Result<std::string> impersonated(const Federation& federation, const std::string& token);

}  // namespace tnr::gcp
