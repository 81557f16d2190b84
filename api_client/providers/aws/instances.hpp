// Instances: what EC2 says of them, and from one state to another.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api_client/providers/aws/api.hpp"
#include "api_client/vocabulary.hpp"

namespace tnr::aws {

constexpr const char* volume_type = "gp3";  // of the disks that we order

// What we call a thing of EC2's: where it is, and what EC2 calls it. "eu-central-1/i-0123"
struct Id {
    std::string region = {}, id = {};
    std::string text() const { return region + "/" + id; }
    // No region where the text has none.
    static Id of(const std::string& text);
};

// A machine without its price, which needs other questions.
struct Instance {
    Machine machine = {};
    std::optional<int> disk_gib = {};  // unknown where it is of another kind than ours
    bool ended = false;                // EC2 shows what has ended for an hour
};
Instance instance_in(const std::string& region, pugi::xml_node item);
// `which`: parameters of DescribeInstances.
Result<std::vector<Instance>> instances(Api& api, const std::string& region, const Parameters& which);

// Until it is in one of these of EC2's states.
Result<> wait_for(Api& api, const CloudWorld& world, const Id& id, const std::vector<std::string>& states);

// How to get from one state to another.
struct Change {
    std::string action = {};                   // what to ask for
    std::vector<std::string> from = {};        // in which it may be asked for
    std::vector<std::string> on_the_way = {};  // which lead to one of those by themselves
    std::vector<std::string> to = {};          // in which there is nothing (more) to do
};
Result<> change(Api& api, const CloudWorld& world, const Id& id, const Change& what);

// Of an action that takes nothing but the instance.
Result<> act(Api& api, const Id& id, const std::string& action);

std::string base64(const std::string& text);

}  // namespace tnr::aws
