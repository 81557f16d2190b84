// See instances.hpp.
#include "api_client/providers/aws/instances.hpp"

#include <algorithm>

#include "api_client/http/json_api.hpp"
#include "api_client/providers/aws/network.hpp"

namespace tnr::aws {
namespace {

constexpr int unseen_seconds_max = 30;   // one part of EC2 took our order, another has not heard of the instance yet
constexpr int change_seconds_max = 900;  // a stop takes a minute, of a machine that hangs some

MachineState state_of(const std::string& state) {
    if (state == "running") return MachineState::running;
    if (state == "stopping") return MachineState::stopping;
    if (state == "stopped") return MachineState::stopped;
    if (state == "shutting-down" || state == "terminated") return MachineState::gone;
    return MachineState::starting;  // pending
}

bool is_in(const std::vector<std::string>& states, const std::string& state) {
    return std::find(states.begin(), states.end(), state) != states.end();
}

std::optional<int> disk_of(const Id& id, const std::vector<pugi::xml_node>& volumes) {
    std::optional<int> gib;
    for (auto volume : volumes)
        for (auto attachment : items(volume, "attachmentSet")) {
            if (id.id != text(attachment, "instanceId")) continue;
            if (text(volume, "volumeType") != volume_type) return std::nullopt;
            gib = gib.value_or(0) + std::stoi(required(volume, "size"));
        }
    return gib;
}

Result<std::string> state_now(Api& api, const Id& id) {
    auto found = api.get({.region = id.region, .action = "DescribeInstances", .parameters = {{"InstanceId.1", id.id}}});
    if (!found) return found.error();
    return required(found->root(), "reservationSet/item/instancesSet/item/instanceState/name");
}

}  // namespace

Id Id::of(const std::string& text) {
    const size_t slash = text.find('/');
    return slash == std::string::npos ? Id{"", text} : Id{text.substr(0, slash), text.substr(slash + 1)};
}

Instance instance_in(const std::string& region, pugi::xml_node item) {
    const std::string state = required(item, "instanceState/name"), named = tag(item, tag_name);
    Instance found{.ended = state == "terminated"};
    found.machine = {.id = Id{region, required(item, "instanceId")}.text(),
                     .name = named.empty() ? tag(item, "Name") : named,
                     .state = state_of(state),
                     .address = text(item, "ipAddress"),
                     .region = region,
                     .offer = required(item, "instanceType")};
    return found;
}

Result<std::vector<Instance>> instances(Api& api, const std::string& region, const Parameters& which) {
    auto reservations =
        api.list({.region = region, .action = "DescribeInstances", .parameters = which}, "reservationSet");
    if (!reservations) return reservations.error();
    std::vector<Instance> all;
    for (auto reservation : reservations->items)
        for (auto item : items(reservation, "instancesSet")) all.push_back(instance_in(region, item));
    if (all.empty()) return all;
    auto volumes = api.list({.region = region,
                             .action = "DescribeVolumes",
                             .parameters = {{"Filter.1.Name", "tag-key"}, {"Filter.1.Value.1", tag_name}}},
                            "volumeSet");
    if (!volumes) return volumes.error();
    for (auto& found : all) found.disk_gib = disk_of(Id::of(found.machine.id), volumes->items);
    return all;
}

Result<> wait_for(Api& api, const CloudWorld& world, const Id& id, const std::vector<std::string>& states) {
    std::string last;
    int unseen = 0;
    auto there = http::poll(world, change_seconds_max, [&]() -> Result<bool> {
        auto now = state_now(api, id);
        if (!now && now.error().kind == Error::Kind::not_found && ++unseen <= unseen_seconds_max) return false;
        if (!now) return now.error();
        last = *now;
        return is_in(states, last) || last == "terminated";
    });
    if (!there) return there.error();
    if (is_in(states, last)) return Ok{};
    return Error{Error::Kind::remote, "the machine is " + last + " at AWS, and does not become " + states.front()};
}

Result<> change(Api& api, const CloudWorld& world, const Id& id, const Change& what) {
    auto now = state_now(api, id);
    if (!now) return now.error();
    if (is_in(what.to, *now)) return Ok{};
    const bool wait_first = is_in(what.on_the_way, *now);
    if (wait_first)
        if (auto waited = wait_for(api, world, id, what.from); !waited) return waited;
    if (wait_first || is_in(what.from, *now))
        if (auto asked = act(api, id, what.action); !asked) return asked;
    return wait_for(api, world, id, what.to);
}

Result<> act(Api& api, const Id& id, const std::string& action) {
    auto reply = api.get({.region = id.region, .action = action, .parameters = {{"InstanceId.1", id.id}}});
    return reply ? Result<>{Ok{}} : Result<>{reply.error()};
}

std::string base64(const std::string& text) {
    static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (size_t at = 0; at < text.size(); at += 3) {
        unsigned group = 0;
        for (size_t i = 0; i < 3; ++i)
            group = group << 8 | (at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u);
        for (size_t i = 0; i < 4; ++i) out += i <= text.size() - at ? digits[group >> (18 - 6 * i) & 63] : '=';
    }
    return out;
}

}  // namespace tnr::aws
