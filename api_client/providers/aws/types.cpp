// See types.hpp.
#include "api_client/providers/aws/types.hpp"

#include "api_client/http/json_api.hpp"

namespace tnr::aws {
namespace {

using http::Json;

bool has_accelerator(pugi::xml_node type) {
    for (const char* kind : {"gpuInfo", "inferenceAcceleratorInfo", "fpgaInfo", "neuronInfo", "mediaAcceleratorInfo"})
        if (type.child(kind)) return true;
    return false;
}

Result<Json> ask_for_types(Api& api, const std::string& region) {
    auto found = api.list({.region = region,
                           .action = "DescribeInstanceTypes",
                           .parameters = {{"Filter.1.Name", "processor-info.supported-architecture"},
                                          {"Filter.1.Value.1", "x86_64"},
                                          {"Filter.2.Name", "hypervisor"},
                                          {"Filter.2.Value.1", "nitro"},
                                          {"Filter.3.Name", "bare-metal"},
                                          {"Filter.3.Value.1", "false"},
                                          {"Filter.4.Name", "supported-usage-class"},
                                          {"Filter.4.Value.1", "on-demand"}}},
                          "instanceTypeSet");
    if (!found) return found.error();
    auto there = offered_in(api, region, "region", region);
    if (!there) return there.error();
    return http::understood("AWS", [&]() -> Result<Json> {
        Json types = Json::array();
        for (auto type : found->items) {
            const std::string name = required(type, "instanceType");
            if (has_accelerator(type) || !there->count(name)) continue;
            types.push_back({{"name", name},
                             {"cpus", std::stoi(required(type, "vCpuInfo/defaultVCpus"))},
                             {"memory_mib", std::stoi(required(type, "memoryInfo/sizeInMiB"))}});
        }
        return types;
    });
}

}  // namespace

Result<std::vector<Type>> machine_types(Api& api, const CloudWorld& world, const std::string& region) {
    auto dated = http::daily(world, "aws-types-" + region, api.endpoint("ec2", region),
                             [&] { return ask_for_types(api, region); });
    if (!dated) return dated.error();
    return http::understood("the cache of AWS's types", [&]() -> Result<std::vector<Type>> {
        std::vector<Type> types;
        for (const auto& type : dated->body) types.push_back({type.at("name"), type.at("cpus"), type.at("memory_mib")});
        return types;
    });
}

Result<std::set<std::string>> offered_in(Api& api, const std::string& region, const std::string& kind,
                                         const std::string& place) {
    auto found =
        api.list({.region = region,
                  .action = "DescribeInstanceTypeOfferings",
                  .parameters = {{"LocationType", kind}, {"Filter.1.Name", "location"}, {"Filter.1.Value.1", place}}},
                 "instanceTypeOfferingSet");
    if (!found) return found.error();
    std::set<std::string> names;
    for (auto item : found->items) names.insert(required(item, "instanceType"));
    return names;
}

}  // namespace tnr::aws
