// What Google has and what it costs: machine types, and the rates of its billing catalogue, both cut down to what we use.
#pragma once

#include "api_client/http/json_api.hpp"

namespace tnr::gcp {

// All persistent disks that we make are of this kind and at least this large.
constexpr const char* disk_type = "pd-balanced";
constexpr int disk_gib_min = 40;

// {"e2-medium": {"cpus", "memory_mib", "zones": ["us-central1-a", …]}}, x86 only. `path` is the project's.
Result<http::Json> ask_machine_types(http::JsonApi& compute, const std::string& path);
// {"currency", "core": {"e2": {"us-central1": 0.02}}, "ram": …, "disk": {"us-central1": 0.1}, "snapshot": …, "address": 0.005}:
// an hour of a CPU, of a GiB of memory and of an address; a month of a GiB of disk and of snapshot.
Result<http::Json> ask_rates(http::JsonApi& billing);

// Where nothing is known of the type or its rates, the price is unknown. An address costs while the machine runs: it is given
// back when the machine stops.
Price price_of(const http::JsonApi::Dated& rates, const std::string& type, const http::Json& shape,
               const std::string& region, int disk_gib);
std::optional<double> snapshot_month(const http::Json& rates, const std::string& region, double gib);

std::string region_of(const std::string& zone);

}  // namespace tnr::gcp
