// What a machine consists of at Azure: the names of its parts, and how they are made.
#pragma once

#include "api_client/providers/azure/catalogue.hpp"
#include "api_client/vocabulary.hpp"

namespace tnr::azure {

constexpr const char* label = "tnr";
constexpr const char* compute = "/providers/Microsoft.Compute/";
constexpr const char* network = "/providers/Microsoft.Network/";

std::string group_of(const std::string& machine);
std::string snapshot_group(const std::string& snapshot);
// Below the subscription.
std::string group_path(const std::string& group);
std::string snapshot_path(const std::string& snapshot);

// SSH and these ports may be reached.
http::Json firewall_rule(const std::vector<int>& ports);

struct Image {
    http::Json reference = {};  // a vendor's
    std::string snapshot = {};  // else the id of one of ours, and where it is: only there machines are made from it
    std::string location = {};
};
// What Order::image means. An Error of kind usage: there is no such.
Result<Image> find_image(ArmApi& arm, const std::string& name);

// The group and what is in it. When it fails, what was made until then is there.
Result<> build(ArmApi& arm, const Order& order, const Offer& offer, Image image);

}  // namespace tnr::azure
