// Where a machine is put, and the security group of its own that says who may reach it.
//
// The names of groups are unique in a VPC, so a machine's group is also what keeps two orders of one name apart: who has made
// it may order. One that was left behind can be deleted, one in use cannot.
#pragma once

#include <string>
#include <vector>

#include "api_client/providers/aws/api.hpp"

namespace tnr::aws {

constexpr const char* tag_name = "tnr";  // of all that we make; its value is the machine's name

struct Place {
    std::string vpc = {};
    std::string subnet = {}, zone = {};  // empty: AWS chooses
};
// That subnet, or with "" the region's default VPC. An Error of kind usage says how to get one.
Result<Place> find_place(Api& api, const std::string& region, const std::string& subnet);

// The id of a new group that lets SSH in; empty: another machine of that name has it.
Result<std::string> make_group(Api& api, const CloudWorld& world, const std::string& region, const Place& place,
                               const std::string& machine);
// From then on SSH and these ports can be reached, nothing else.
Result<> set_ports(Api& api, const std::string& region, const std::string& group, const std::vector<int>& ports);
// What is not there counts as removed. `in_use`: a machine that has just ended may hold it for a while.
enum class Removed { yes, in_use };
Result<Removed> remove_group(Api& api, const std::string& region, const std::string& group);

struct Group {
    std::string id = {}, machine = {};
};
// All that carry our tag; of one machine, unless that is "".
Result<std::vector<Group>> groups(Api& api, const std::string& region, const std::string& machine);

// TagSpecification.<number> of a request that makes something.
void add_tags(Parameters& parameters, int number, const std::string& kind, const std::string& machine,
              const std::string& name);

}  // namespace tnr::aws
