// Retail prices are public and come without a token; of some thousands at a location, one in ten is of a Linux machine by the hour.
#include "api_client/providers/azure/catalogue.hpp"

#include "api_client/http/oauth.hpp"

namespace tnr::azure {
namespace {

using http::Json;

constexpr int cpus_max = 64;  // a machine without a GPU that would need more has another problem
constexpr double hours_per_month = 730;

std::string capability(const Json& sku, const std::string& name) {
    for (const auto& each : sku.value("capabilities", Json::array()))
        if (each.at("name") == name) return each.at("value");
    return "";
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

bool fits(const Json& sku) {
    const std::string gpus = capability(sku, "GPUs"), controllers = capability(sku, "DiskControllerTypes");
    return sku.at("resourceType") == "virtualMachines" && capability(sku, "CpuArchitectureType") == "x64" &&
           (gpus.empty() || gpus == "0") && has(capability(sku, "HyperVGenerations"), "V2") &&
           (controllers.empty() || has(controllers, "SCSI")) && std::stoi(capability(sku, "vCPUs")) <= cpus_max;
}

// Not in some zones only, and not only for others.
bool available(const Json& sku) {
    for (const auto& each : sku.value("restrictions", Json::array()))
        if (each.value("type", "") == "Location") return false;
    return true;
}

Result<std::vector<Json>> prices_where(http::JsonApi& prices, const std::string& filter) {
    return prices.all("/api/retail/prices?$filter=" + http::escaped("priceType eq 'Consumption' and " + filter),
                      "Items", [](const Json& page) -> std::string {
                          const Json next = page.value("NextPageLink", Json());
                          if (!next.is_string()) return "";
                          const std::string address = next;  // anybody may ask, so no more than its path is taken
                          const size_t path = address.find("/api/");
                          return path == std::string::npos ? "" : address.substr(path);
                      });
}

bool is_linux_by_the_hour(const Json& item) {
    const std::string product = item.at("productName"), sku = item.at("skuName");
    return !has(product, "Windows") && !has(product, "Cloud") && !has(sku, "Spot") && !has(sku, "Low Priority") &&
           item.at("unitOfMeasure") == "1 Hour" && item.at("type") == "Consumption";
}

}  // namespace

Result<Json> ask_sizes(ArmApi& arm, const std::string& location) {
    auto skus =
        arm.list("/providers/Microsoft.Compute/skus?$filter=" + http::escaped("location eq '" + location + "'"));
    if (!skus) return skus.error();
    return http::understood("Azure", [&]() -> Result<Json> {
        Json sizes = Json::object();
        for (const auto& sku : *skus) {
            if (sku.at("resourceType") != "virtualMachines" || !fits(sku)) continue;
            sizes[sku.at("name").get<std::string>()] = {
                {"cpus", std::stoi(capability(sku, "vCPUs"))},
                {"memory_mib", static_cast<int>(std::stod(capability(sku, "MemoryGB")) * 1024)},
                {"available", available(sku)}};
        }
        return sizes;
    });
}

Result<Json> ask_rates(http::JsonApi& prices, const std::string& location) {
    const std::string here = " and armRegionName eq '" + location + "'";
    auto machines = prices_where(prices, "serviceName eq 'Virtual Machines'" + here);
    if (!machines) return machines.error();
    auto disks = prices_where(prices, "serviceName eq 'Storage' and meterName eq 'E6 LRS Disk'" + here);
    if (!disks) return disks.error();
    auto addresses =
        prices_where(prices, "serviceName eq 'Virtual Network' and meterName eq 'Standard IPv4 Static Public IP'");
    if (!addresses) return addresses.error();
    return http::understood("Azure", [&]() -> Result<Json> {
        Json rates = {{"currency", "USD"}, {"machine", Json::object()}};
        for (const auto& item : *machines)
            if (is_linux_by_the_hour(item))
                rates["machine"][item.at("armSkuName").get<std::string>()] = http::amount_in(item.at("retailPrice"));
        for (const auto& item : *disks)
            if (item.at("unitOfMeasure") == "1/Month") rates["disk"] = http::amount_in(item.at("retailPrice"));
        for (const auto& item : *addresses) {  // of this place, else of all
            const std::string region = item.value("armRegionName", "");
            if (item.at("unitOfMeasure") != "1 Hour" || (region != location && region != "" && region != "Global"))
                continue;
            if (region == location || !rates.contains("address"))
                rates["address"] = http::amount_in(item.at("retailPrice"));
        }
        return rates;
    });
}

Price price_of(const http::JsonApi::Dated& rates, const std::string& size, int disk_gib_there) {
    auto number = [](const Json& from, const std::string& name) -> std::optional<double> {
        if (!from.is_object() || !from.contains(name) || !from[name].is_number()) return std::nullopt;
        return from[name].get<double>();
    };
    Price price{.currency = rates.body.value("currency", ""),
                .machine = number(rates.body.value("machine", Json::object()), size),
                .address = number(rates.body, "address"),
                .source = rates.body.value("source", "Azure's retail prices"),
                .date = rates.date};
    const auto disk_month = number(rates.body, "disk");
    if (disk_month && disk_gib_there == disk_gib) price.disk = *disk_month / hours_per_month;
    return price;
}

}  // namespace tnr::azure
