// The sizes that Azure has at a location, and what it asks for them: both cut down to what we use.
#pragma once

#include "api_client/providers/azure/arm_api.hpp"

namespace tnr::azure {

constexpr const char* disk_kind = "StandardSSD_LRS";
constexpr int disk_gib = 64;  // the size that is billed as "E6"

// {"Standard_B2s": {"cpus", "memory_mib", "available"}}: x86 without GPUs that start our image.
Result<http::Json> ask_sizes(ArmApi& arm, const std::string& location);
// {"currency", "machine": {"Standard_B2s": an hour}, "disk": a month of ours, "address": an hour}.
Result<http::Json> ask_rates(http::JsonApi& prices, const std::string& location);

// The disk is unknown unless it is one of ours.
Price price_of(const http::JsonApi::Dated& rates, const std::string& size, int disk_gib_there);

}  // namespace tnr::azure
