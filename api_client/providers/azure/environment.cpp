// https://learn.microsoft.com/azure/azure-government/compare-azure-government-global-azure and …/china/resources-developer-guide
#include "api_client/providers/azure/environment.hpp"

#include <map>

#include "api_client/tool_files.hpp"

namespace tnr::azure {
namespace {

const Environment known_environments[] = {
    {"AzureCloud", "https://login.microsoftonline.com", "https://management.azure.com", "https://management.azure.com/",
     "https://management.core.windows.net/"},
    {"AzureUSGovernment", "https://login.microsoftonline.us", "https://management.usgovcloudapi.net",
     "https://management.usgovcloudapi.net/", "https://management.core.usgovcloudapi.net/"},
    {"AzureChinaCloud", "https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn",
     "https://management.chinacloudapi.cn/", "https://management.core.chinacloudapi.cn/"}};

std::string as_address(std::string host) {
    if (host.empty()) return host;
    if (host.find("://") == std::string::npos) host = "https://" + host;
    while (host.back() == '/') host.pop_back();
    return host;
}

Result<Environment> named(const std::string& name, const CloudWorld& world) {
    for (const auto& each : known_environments)
        if (each.name == name) return each;
    // What `az cloud register` has written.
    Section settings = sections_of(small_file(az_folder(world) + "/clouds.config"))[name];
    const Environment own{
        name, as_address(settings["endpoint_active_directory"]), as_address(settings["endpoint_resource_manager"]),
        settings["endpoint_active_directory_resource_id"], settings["endpoint_active_directory_resource_id"]};
    if (!own.authority.empty() && !own.manager.empty() && !own.core.empty()) return own;
    std::string names;
    for (const auto& each : known_environments) names += (names.empty() ? "" : ", ") + each.name;
    return Error{Error::Kind::usage, "Azure: az is set to the cloud '" + name + "', whose addresses nothing tells",
                 "those that are known: " + names + "; `az cloud set --name NAME` chooses one"};
}

}  // namespace

std::string az_folder(const CloudWorld& world) {
    const std::string folder = world.variable("AZURE_CONFIG_DIR");
    return folder.empty() ? world.home + "/.azure" : folder;
}

Result<Environment> environment(const CloudWorld& world) {
    const std::string authority = as_address(world.variable("AZURE_AUTHORITY_HOST")),
                      manager = as_address(world.variable("AZURE_RESOURCE_MANAGER_HOST"));
    std::string name = world.variable("AZURE_CLOUD_NAME");
    if (name.empty()) name = sections_of(small_file(az_folder(world) + "/config"))["cloud"]["name"];
    for (const auto& each : known_environments)
        if (name.empty() && each.authority == authority) name = each.name;
    auto found = named(name.empty() ? known_environments[0].name : name, world);
    if (!found) return found;
    if (!authority.empty()) found->authority = authority;
    if (!manager.empty()) found->manager = manager;
    return found;
}

}  // namespace tnr::azure
