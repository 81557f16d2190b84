// Which of Azure's clouds we are in: the public one, one of the two that governments have their own rules for, or one of a company.
#pragma once

#include <string>

#include "api_client/cloud.hpp"

namespace tnr::azure {

struct Environment {
    std::string name = {};       // "AzureUSGovernment", as az calls it
    std::string authority = {};  // "https://login.microsoftonline.us", which gives tokens
    std::string manager = {};    // "https://management.usgovcloudapi.net": the resource manager
    // What tokens for it are for, whatever its address is; and as az calls that: "https://management.core.usgovcloudapi.net/".
    std::string resource = {}, core = {};
};

// As az is set (AZURE_CLOUD_NAME, the files `config` and `clouds.config` of its folder), else as AZURE_AUTHORITY_HOST, which
// Azure's libraries read, tells. AZURE_AUTHORITY_HOST and AZURE_RESOURCE_MANAGER_HOST replace the addresses alone. A name whose
// addresses nothing tells is an Error of kind usage.
Result<Environment> environment(const CloudWorld& world);

// Where az keeps its files.
std::string az_folder(const CloudWorld& world);

}  // namespace tnr::azure
