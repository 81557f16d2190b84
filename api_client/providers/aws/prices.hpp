// What AWS charges, from its Price List API: machines by the hour, gp3 volumes, public IPv4 addresses.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "api_client/providers/aws/api.hpp"

namespace tnr::aws {

// What is charged in one region. What is missing is unknown.
struct Tariff {
    std::map<std::string, double> machines = {};   // by type, an hour of Linux on demand
    std::optional<double> gp3 = {}, address = {};  // a GiB for a month; an hour
    std::string source = {}, date = {};

    // AWS takes the address back when a machine stops, so what it costs is part of the machine's price.
    Price price(const std::string& type, std::optional<int> disk_gib) const;
};

// Asks once a day. Never fails: who may not ask for prices can still have a machine, and `source` says why they are unknown.
class Prices {
public:
    Prices(Api& api, const CloudWorld& world) : api_(api), world_(world) {}

    const Tariff& all_in(const std::string& region);
    // With at least that type in it: asks for little where nothing is known yet.
    const Tariff& of_type(const std::string& region, const std::string& type);

private:
    Tariff learn(const std::string& region, const std::string& type);
    Result<nlohmann::json> ask(const std::string& region, const std::string& type);
    Result<std::vector<nlohmann::json>> products(const std::string& service, const Parameters& fields);

    Api& api_;
    CloudWorld world_;
    std::map<std::string, Tariff> known_;  // by region, and by region and type
};

}  // namespace tnr::aws
