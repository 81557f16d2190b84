// Google sells CPUs and memory of a family by the hour, so a type's price is a sum; the catalogue names rates in prose only.
#include "api_client/providers/gcp/catalogue.hpp"

#include <algorithm>
#include <sstream>

namespace tnr::gcp {
namespace {

using http::Json;

// Families that boot from a persistent disk; newer ones want a hyperdisk, which has three rates of its own.
constexpr const char* families = "(e2|n1|n2|n2d|t2d|c2|c2d|c3|c3d)-.*";
constexpr int cpus_max = 64;  // a machine without a GPU that would need more has another problem
constexpr double hours_per_month = 730;
constexpr const char* compute_engine = "6F81-5844-456A";  // its number in the catalogue

// Types that share CPUs are billed by a part of what they show.
constexpr std::pair<const char*, double> shared_cpus[] = {{"e2-micro", 0.25}, {"e2-small", 0.5}, {"e2-medium", 1}};

bool begins_with(const std::string& text, const std::string& begin) {
    return text.compare(0, begin.size(), begin) == 0;
}

// "N2D AMD Instance Ram running in Iowa" is {"ram", "n2d"}; nothing for what is no machine's plain rate.
std::optional<std::pair<std::string, std::string>> meaning_of(const std::string& description) {
    const size_t end = description.find(" running in ");
    if (end == std::string::npos) return std::nullopt;
    std::istringstream stream(description.substr(0, end));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.size() < 2 || (words.back() != "Core" && words.back() != "Ram")) return std::nullopt;
    const std::string what = words.back() == "Core" ? "core" : "ram";
    words.pop_back();
    if (words.back() == "Instance") words.pop_back();
    if (words == std::vector<std::string>{"N1", "Predefined"}) return std::pair(what, std::string("n1"));
    if (words == std::vector<std::string>{"Compute", "optimized"}) return std::pair(what, std::string("c2"));
    if (words.size() == 2 && words.back() == "AMD") words.pop_back();
    if (words.size() != 1) return std::nullopt;  // "Custom", "Sole Tenancy", …
    std::string family = words.front();
    std::transform(family.begin(), family.end(), family.begin(), [](unsigned char c) { return std::tolower(c); });
    return std::pair(what, family);
}

// The rate after what is free; nothing where the unit is another.
std::optional<double> rate_of(const Json& sku, const std::string& unit) {
    const Json& pricing = sku.at("pricingInfo");
    if (pricing.empty()) return std::nullopt;
    const Json& expression = pricing.back().at("pricingExpression");
    if (expression.at("usageUnit") != unit || expression.at("tieredRates").empty()) return std::nullopt;
    const Json& price = expression["tieredRates"].back().at("unitPrice");
    return http::amount_in(price.value("units", "0")) + price.value("nanos", 0) / 1e9;
}

void note(const Json& sku, Json& rates) {
    const std::string description = sku.at("description");
    if (sku.at("category").value("usageType", "") != "OnDemand") return;
    auto keep = [&](Json& where, const std::string& unit) {
        if (auto rate = rate_of(sku, unit))
            for (const auto& region : sku.at("serviceRegions")) where[region.get<std::string>()] = *rate;
    };
    if (auto meaning = meaning_of(description)) {
        const auto& [what, family] = *meaning;
        keep(rates[what][family], what == "core" ? "h" : "GiBy.h");
    } else if (begins_with(description, "Balanced PD Capacity")) {
        keep(rates["disk"], "GiBy.mo");
    } else if (begins_with(description, "Storage PD Snapshot")) {
        keep(rates["snapshot"], "GiBy.mo");
    } else if (begins_with(description, "External IP Charge on a Standard VM")) {
        if (auto rate = rate_of(sku, "h")) rates["address"] = *rate;
    }
}

std::optional<double> at(const Json& rates, std::initializer_list<std::string> path) {
    const Json* here = &rates;
    for (const auto& name : path) {
        if (!here->is_object() || !here->contains(name)) return std::nullopt;
        here = &(*here)[name];
    }
    return here->is_number() ? std::optional<double>(here->get<double>()) : std::nullopt;
}

std::optional<double> machine_hour(const Json& rates, const std::string& type, const Json& shape,
                                   const std::string& region) {
    // Local disks are part of such types and not of these rates.
    if (!shape.is_object() || type.find("lssd") != std::string::npos) return std::nullopt;
    const std::string family = type.substr(0, type.find('-'));
    const auto core = at(rates, {"core", family, region}), ram = at(rates, {"ram", family, region}),
               address = at(rates, {"address"});
    if (!core || !ram || !address) return std::nullopt;
    double cpus = shape.at("cpus");
    for (const auto& [name, billed] : shared_cpus)
        if (type == name) cpus = billed;
    return cpus * *core + shape.at("memory_mib").get<double>() / 1024 * *ram + *address;
}

}  // namespace

std::string region_of(const std::string& zone) {
    return zone.substr(0, zone.rfind('-'));
}

Result<Json> ask_machine_types(http::JsonApi& compute, const std::string& path) {
    const std::string first =
        path + "/aggregated/machineTypes?maxResults=500&filter=" + http::escaped(std::string("name eq ") + families) +
        "&fields=nextPageToken,items/*/machineTypes(name,guestCpus,memoryMb,deprecated,accelerators,"
        "architecture,zone)";
    Json types = Json::object();
    auto note_type = [&](const Json& type) {
        const bool fits = type.value("architecture", "X86_64") == "X86_64" && !type.contains("deprecated") &&
                          !type.contains("accelerators") && type.at("guestCpus").get<int>() <= cpus_max;
        if (!fits) return;
        Json& entry = types[type.at("name").get<std::string>()];
        entry["cpus"] = type.at("guestCpus");
        entry["memory_mib"] = type.at("memoryMb");
        entry["zones"].push_back(type.at("zone"));
    };
    auto pages = compute.all(first, "items", [&](const Json& page) {
        for (const auto& [zone, part] : page.at("items").items())
            for (const auto& type : part.value("machineTypes", Json::array())) note_type(type);
        const std::string next = page.value("nextPageToken", "");
        return next.empty() ? "" : first + "&pageToken=" + http::escaped(next);
    });
    if (!pages) return pages.error();
    return types;
}

Result<Json> ask_rates(http::JsonApi& billing) {
    const std::string first = std::string("/v1/services/") + compute_engine +
                              "/skus?pageSize=5000&fields=nextPageToken,skus(description,category,serviceRegions,"
                              "pricingInfo/pricingExpression)";
    Json rates = {{"currency", "USD"}};
    auto pages = billing.all(first, "skus", [&](const Json& page) {
        for (const auto& sku : page.at("skus")) note(sku, rates);
        const std::string next = page.value("nextPageToken", "");
        return next.empty() ? "" : first + "&pageToken=" + http::escaped(next);
    });
    if (!pages) return pages.error();
    return rates;
}

Price price_of(const http::JsonApi::Dated& dated, const std::string& type, const Json& shape, const std::string& region,
               int disk_gib) {
    Price price{.currency = dated.body.value("currency", ""),
                .machine = machine_hour(dated.body, type, shape, region),
                .address = 0,
                .source = dated.body.value("source", "Google's billing catalogue, with the address while it runs"),
                .date = dated.date};
    if (auto disk = at(dated.body, {"disk", region})) price.disk = *disk * disk_gib / hours_per_month;
    return price;
}

std::optional<double> snapshot_month(const Json& rates, const std::string& region, double gib) {
    const auto rate = at(rates, {"snapshot", region});
    return rate ? std::optional(*rate * gib) : std::nullopt;
}

}  // namespace tnr::gcp
