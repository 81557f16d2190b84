// VPCs and security groups.
#include "api_client/providers/aws/network.hpp"

#include <algorithm>
#include <set>

#include "api_client/http/json_api.hpp"

namespace tnr::aws {
namespace {

constexpr int ssh_port = 22;
constexpr int new_group_seconds_max = 60;

Parameters rule(const std::string& group, int number, int from, int to) {
    const std::string prefix = "IpPermissions." + std::to_string(number) + ".";
    return {{"GroupId", group},
            {prefix + "IpProtocol", "tcp"},
            {prefix + "FromPort", std::to_string(from)},
            {prefix + "ToPort", std::to_string(to)},
            {prefix + "IpRanges.1.CidrIp", "0.0.0.0/0"},
            {prefix + "Ipv6Ranges.1.CidrIpv6", "::/0"}};
}

Result<> change(Api& api, const std::string& region, const std::string& action, const std::string& done_already,
                const Parameters& parameters) {
    auto reply = api.ask({.region = region, .action = action, .parameters = parameters});
    if (!reply) return reply.error();
    if (reply->ok() || reply->refusal.code == done_already) return Ok{};
    return api.refused(reply->refusal);
}

Result<> let_in(Api& api, const std::string& region, const std::string& group, int port) {
    return change(api, region, "AuthorizeSecurityGroupIngress", "InvalidPermission.Duplicate",
                  rule(group, 1, port, port));
}

}  // namespace

Result<Place> find_place(Api& api, const std::string& region, const std::string& subnet) {
    if (!subnet.empty()) {
        auto found = api.get({.region = region, .action = "DescribeSubnets", .parameters = {{"SubnetId.1", subnet}}});
        if (!found && found.error().kind == Error::Kind::not_found)
            return Error{Error::Kind::usage, "there is no subnet '" + subnet + "' in " + region,
                         "TNR_AWS_SUBNET names one in the region of the machine; unset, the default VPC is used"};
        if (!found) return found.error();
        const auto item = found->root().first_element_by_path("subnetSet/item");
        return Place{required(item, "vpcId"), subnet, required(item, "availabilityZone")};
    }
    auto found = api.get({.region = region,
                          .action = "DescribeVpcs",
                          .parameters = {{"Filter.1.Name", "is-default"}, {"Filter.1.Value.1", "true"}}});
    if (!found) return found.error();
    const auto all = items(found->root(), "vpcSet");
    if (!all.empty()) return Place{required(all.front(), "vpcId")};
    return Error{Error::Kind::usage, "there is no default VPC in " + region,
                 "make one by `aws ec2 create-default-vpc --region " + region +
                     "`, or name a subnet of your own in TNR_AWS_SUBNET"};
}

Result<std::string> make_group(Api& api, const CloudWorld& world, const std::string& region, const Place& place,
                               const std::string& machine) {
    const std::string name = "tnr-" + machine;
    Parameters parameters = {
        {"GroupName", name}, {"GroupDescription", "Made by tnr for " + machine}, {"VpcId", place.vpc}};
    add_tags(parameters, 1, "security-group", machine, name);
    for (const bool first : {true, false}) {
        auto made =
            api.ask({.region = region, .action = "CreateSecurityGroup", .parameters = parameters, .repeatable = false});
        if (!made) return made.error();
        if (made->ok()) {
            const std::string id = required(made->body.root(), "groupId");
            auto open = http::poll(world, new_group_seconds_max, [&]() -> Result<bool> {
                auto done = let_in(api, region, id, ssh_port);
                if (!done && done.error().kind != Error::Kind::not_found) return done.error();
                return bool(done);  // EC2's parts learn from each other with a delay
            });
            if (!open) return open.error();
            return *open ? id : "";  // never seen: another order of that name has taken its place
        }
        if (made->refusal.code != "InvalidGroup.Duplicate") return api.refused(made->refusal);
        if (!first) break;
        // Left behind by a command that was cut off, or of a machine that is there or is just being made.
        auto left = groups(api, region, machine);
        if (!left) return left.error();
        for (const auto& group : *left) {
            auto removed = remove_group(api, region, group.id);
            if (!removed) return removed.error();
            if (*removed == Removed::in_use) return std::string();
        }
    }
    return std::string();
}

Result<> set_ports(Api& api, const std::string& region, const std::string& group, const std::vector<int>& ports) {
    auto found = api.get({.region = region, .action = "DescribeSecurityGroups", .parameters = {{"GroupId.1", group}}});
    if (!found) return found.error();
    std::set<int> missing(ports.begin(), ports.end());
    missing.insert(ssh_port);
    for (auto allowed : items(found->root().first_element_by_path("securityGroupInfo/item"), "ipPermissions")) {
        const int from = allowed.child("fromPort").text().as_int(-1), to = allowed.child("toPort").text().as_int(-1);
        if (from == to && missing.erase(from)) continue;
        auto taken =
            change(api, region, "RevokeSecurityGroupIngress", "InvalidPermission.NotFound", rule(group, 1, from, to));
        if (!taken) return taken;
    }
    for (int port : missing)
        if (auto open = let_in(api, region, group, port); !open) return open;
    return Ok{};
}

Result<Removed> remove_group(Api& api, const std::string& region, const std::string& group) {
    auto reply = api.ask({.region = region, .action = "DeleteSecurityGroup", .parameters = {{"GroupId", group}}});
    if (!reply) return reply.error();
    if (reply->ok() || reply->refusal.code == "InvalidGroup.NotFound") return Removed::yes;
    if (reply->refusal.code == "DependencyViolation" || reply->refusal.code == "InvalidGroup.InUse")
        return Removed::in_use;
    return api.refused(reply->refusal);
}

Result<std::vector<Group>> groups(Api& api, const std::string& region, const std::string& machine) {
    Call call{.region = region, .action = "DescribeSecurityGroups"};
    if (machine.empty())
        call.parameters = {{"Filter.1.Name", "tag-key"}, {"Filter.1.Value.1", tag_name}};
    else
        call.parameters = {{"Filter.1.Name", std::string("tag:") + tag_name}, {"Filter.1.Value.1", machine}};
    auto found = api.list(call, "securityGroupInfo");
    if (!found) return found.error();
    std::vector<Group> all;
    for (auto item : found->items) all.push_back({required(item, "groupId"), tag(item, tag_name)});
    return all;
}

void add_tags(Parameters& parameters, int number, const std::string& kind, const std::string& machine,
              const std::string& name) {
    const std::string prefix = "TagSpecification." + std::to_string(number) + ".";
    parameters.insert(parameters.end(), {{prefix + "ResourceType", kind},
                                         {prefix + "Tag.1.Key", tag_name},
                                         {prefix + "Tag.1.Value", machine},
                                         {prefix + "Tag.2.Key", "Name"},
                                         {prefix + "Tag.2.Value", name}});
}

}  // namespace tnr::aws
