// The Price List API is in three regions only and tells of all others: us-east-1 is asked. Each product is JSON in a string.
#include "api_client/providers/aws/prices.hpp"

#include <algorithm>

#include "api_client/http/json_api.hpp"
#include "api_client/http/parse.hpp"

namespace tnr::aws {
namespace {

using http::Json;

constexpr double hours_per_month = 730;
constexpr const char* price_list = "AWS's Price List, on demand, without tax";
constexpr const char* currency = "USD";

// The price on demand per unit; the dearest where more of it gets cheaper. Nothing: it has none in dollars.
std::optional<double> on_demand(const Json& product) {
    std::optional<double> dearest;
    for (const auto& term : product.at("terms").value("OnDemand", Json::object()))
        for (const auto& dimension : term.at("priceDimensions")) {
            const Json& per_unit = dimension.at("pricePerUnit");
            if (!per_unit.contains(currency)) continue;
            const double price = http::amount_in(per_unit[currency]);
            dearest = std::max(price, dearest.value_or(0));
        }
    return dearest;
}

std::string attribute(const Json& product, const char* name) {
    return product.at("product").at("attributes").value(name, "");
}

}  // namespace

Price Tariff::price(const std::string& type, std::optional<int> disk_gib) const {
    Price price{.currency = currency, .address = 0, .source = source, .date = date};
    auto machine = machines.find(type);
    if (machine != machines.end() && address) price.machine = machine->second + *address;
    if (gp3 && disk_gib) price.disk = *disk_gib * *gp3 / hours_per_month;
    return price;
}

const Tariff& Prices::all_in(const std::string& region) {
    auto [place, unknown] = known_.try_emplace(region);
    if (unknown) place->second = learn(region, "");
    return place->second;
}

const Tariff& Prices::of_type(const std::string& region, const std::string& type) {
    if (auto all = known_.find(region); all != known_.end()) return all->second;
    auto [place, unknown] = known_.try_emplace(region + "-" + type);
    if (unknown) place->second = learn(region, type);
    return place->second;
}

Tariff Prices::learn(const std::string& region, const std::string& type) {
    const std::string base = api_.endpoint("pricing", region), name = "aws-" + region;
    // Of all types where that is known already, for it is a longer question.
    auto dated = http::daily(world_, name, base, [&]() -> Result<Json> {
        return type.empty() ? ask(region, "") : Error{Error::Kind::not_found, "not asked for today"};
    });
    if (!dated && !type.empty())
        dated = http::daily(world_, name + "-" + type, base, [&] { return ask(region, type); });
    if (!dated) return Tariff{.source = "unknown: " + dated.error().what, .date = world_.now()};
    auto tariff = http::understood("the price cache", [&]() -> Result<Tariff> {
        Tariff read{.source = price_list, .date = dated->date};
        for (const auto& [each, price] : dated->body.at("machines").items()) read.machines[each] = price;
        if (const Json& gp3 = dated->body.at("gp3"); gp3.is_number()) read.gp3 = gp3;
        if (const Json& address = dated->body.at("address"); address.is_number()) read.address = address;
        return read;
    });
    return tariff ? *tariff : Tariff{.source = "unknown: " + tariff.error().what, .date = world_.now()};
}

Result<Json> Prices::ask(const std::string& region, const std::string& type) {
    Parameters wanted = {{"regionCode", region},
                         {"operatingSystem", "Linux"},
                         {"tenancy", "Shared"},
                         {"preInstalledSw", "NA"},
                         {"capacitystatus", "Used"}};
    if (!type.empty()) wanted.emplace_back("instanceType", type);
    auto machines = products("AmazonEC2", wanted);
    if (!machines) return machines.error();
    auto volumes =
        products("AmazonEC2", {{"regionCode", region}, {"productFamily", "Storage"}, {"volumeApiName", "gp3"}});
    if (!volumes) return volumes.error();
    auto addresses = products("AmazonVPC", {{"regionCode", region}, {"group", "VPCPublicIPv4Address"}});
    if (!addresses) return addresses.error();
    return http::understood("AWS's Price List", [&]() -> Result<Json> {
        Json found = {{"machines", Json::object()}, {"gp3", nullptr}, {"address", nullptr}};
        for (const auto& product : *machines)
            if (auto price = on_demand(product)) found["machines"][attribute(product, "instanceType")] = *price;
        for (const auto& product : *volumes)
            if (auto price = on_demand(product)) found["gp3"] = *price;
        for (const auto& product : *addresses)
            if (attribute(product, "usagetype").find("PublicIPv4:InUseAddress") != std::string::npos)
                if (auto price = on_demand(product)) found["address"] = *price;
        return found;
    });
}

Result<std::vector<Json>> Prices::products(const std::string& service, const Parameters& fields) {
    Json question = {
        {"ServiceCode", service}, {"FormatVersion", "aws_v1"}, {"MaxResults", 100}, {"Filters", Json::array()}};
    for (const auto& [field, value] : fields)
        question["Filters"].push_back({{"Type", "TERM_MATCH"}, {"Field", field}, {"Value", value}});
    return http::understood("AWS's Price List", [&]() -> Result<std::vector<Json>> {
        std::vector<Json> all;
        for (http::Pages pages; pages.go_on(question.value("NextToken", ""));) {
            auto reply = api_.json("pricing", "AWSPriceListService.GetProducts", question);
            if (!reply) return reply.error();
            for (const auto& text : reply->at("PriceList")) {
                all.push_back(http::parse_json(text.get<std::string>()));
                all.back()["terms"].erase("Reserved");  // a hundred times the rest
            }
            if (reply->value("NextToken", "").empty()) return all;
            question["NextToken"] = reply->at("NextToken");
        }
        return Error{Error::Kind::remote, "AWS's list of prices does not end"};
    });
}

}  // namespace tnr::aws
