// Microsoft Azure, https://learn.microsoft.com/rest/api/azure/. A machine is a resource group `tnr-NAME` with the tag `tnr`, and in it
// the virtual machine, its disk, card, address, network and security group: what goes with the group leaves nothing.
// A snapshot is a group of its own, `tnr.snapshot.NAME`, for it outlives its machine.
//
// Every step is a PUT, which may be repeated. The id of a machine is its group's name.
#include <algorithm>

#include "api_client/offers.hpp"
#include "api_client/providers/azure/build.hpp"

namespace tnr::azure {
namespace {

using http::Json;
using http::understood;

constexpr const char* default_location = "eastus";
constexpr int removal_seconds_max = 1200;  // as ArmApi waits for one that it has asked for

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

// The group in a resource's id, which Azure writes in whatever case it likes.
std::string group_in(const std::string& id) {
    const std::string small = lower(id), before = "/resourcegroups/";
    const size_t begin = small.find(before);
    if (begin == std::string::npos) return "";
    const size_t name = begin + before.size();
    return small.substr(name, small.find('/', name) - name);
}

std::string tag_in(const Json& resource) {
    const Json tags = resource.value("tags", Json());
    return tags.is_object() ? tags.value(label, "") : "";
}

// How Azure refuses what is asked of a group meanwhile.
constexpr const char* being_removed = "ResourceGroupBeingDeleted";
bool is_going(const Json& group) {
    return group.at("properties").value("provisioningState", "") == "Deleting";
}

// "PowerState/running" is "running"; empty where the machine has none yet.
std::string power_in(const Json& instance_view) {
    for (const auto& status : instance_view.value("statuses", Json::array())) {
        const std::string code = status.value("code", "");
        if (code.compare(0, 11, "PowerState/") == 0) return code.substr(11);
    }
    return "";
}

MachineState state_of(const std::string& power) {
    if (power == "running") return MachineState::running;
    if (power == "deallocated" || power == "stopped") return MachineState::stopped;
    if (power == "deallocating" || power == "stopping") return MachineState::stopping;
    return MachineState::starting;
}

class Azure : public Provider {
public:
    Azure(const Credentials& credentials, const CloudWorld& world)
        : world_(world),
          identity_(credentials, world),
          arm_(identity_, world),
          prices_(
              {.cloud = "Azure's retail prices",
               .base = world.variable("AZURE_RETAIL_PRICES_HOST").empty() ? "https://prices.azure.com"
                                                                          : world.variable("AZURE_RETAIL_PRICES_HOST"),
               .refusal = [](const Json&) { return http::Refusal{}; }},
              world) {}

    std::string name() const override { return "azure"; }
    bool power_off_ends_billing() const override { return false; }

    Result<std::string> whoami() override {
        auto subscription = arm_.get("");
        if (!subscription) return subscription.error();
        return understood("Azure", [&]() -> Result<std::string> {
            return "subscription " + subscription->at("displayName").get<std::string>() + " (" +
                   subscription->at("subscriptionId").get<std::string>() + ")";
        });
    }

    Result<std::vector<Offer>> offers() override { return offers_in(""); }

    // One location at a time: all lists together have 60 MB.
    Result<std::vector<Offer>> offers_in(const std::string& wanted) override {
        const std::string location = location_for(wanted);
        auto sizes = arm_.daily("azure-sizes-" + http::escaped(location), [&] { return ask_sizes(arm_, location); });
        if (!sizes) return sizes.error();
        if (sizes->body.empty()) return no_location(location);
        auto rates = this->rates(location);
        if (!rates) return rates.error();
        return understood("Azure", [&]() -> Result<std::vector<Offer>> {
            std::vector<Offer> offers;
            for (const auto& [name, size] : sizes->body.items())
                offers.push_back({.name = name,
                                  .region = location,
                                  .cpus = size.at("cpus"),
                                  .memory_mib = size.at("memory_mib"),
                                  .disk_gib = disk_gib,
                                  .available = size.at("available"),
                                  .price = price_of(*rates, name, disk_gib)});
            default_first(offers);
            return offers;
        });
    }

    Result<Machine> create(const Order& order) override {
        return understood("Azure", [&]() -> Result<Machine> {
            auto begun_in = place_of(order);
            if (!begun_in) return begun_in.error();
            auto image = find_image(arm_, order.image);
            if (!image) return image.error();
            Order placed = order;
            placed.region = location_for(order.region.empty() ? image->location : order.region);
            if (!begun_in->empty()) placed.region = *begun_in;
            auto all = offers_in(placed.region);
            if (!all) return all.error();
            auto offer = choose_offer(*all, placed);
            if (!offer) return offer.error();
            auto built = build_anew(order, *offer, *image);
            auto made = built ? machine(group_of(order.name)) : Result<Machine>(built.error());
            if (!built && arm_.sold_out()) made = sold_out(*offer, built.error(), *all);
            // A refusal is certain; a broken connection is not, and what is there then is found by its tag.
            if (!made && made.error().kind != Error::Kind::network) (void)destroy(group_of(order.name));
            return made;
        });
    }

    Result<Machine> machine(const std::string& id) override {
        return understood("Azure", [&]() -> Result<Machine> {
            auto group = arm_.get(group_path(id));
            if (!group) return group.error();
            const std::string name = tag_in(*group);
            auto server = part(server_path(id, name) + "?$expand=instanceView");
            if (!server) return server.error();
            auto address = part(group_path(id) + network + "publicIPAddresses/address");
            if (!address) return address.error();
            const Json view =
                server->is_null() ? Json() : server->at("properties").value("instanceView", Json::object());
            return describe(*group, *server, view, *address);
        });
    }

    // Four lists, however many machines there are.
    Result<std::vector<Machine>> machines() override {
        auto groups = arm_.list("/resourceGroups?$filter=" + http::escaped(std::string("tagName eq '") + label + "'"));
        if (!groups) return groups.error();
        if (groups->empty()) return std::vector<Machine>{};
        auto servers = arm_.list(std::string(compute) + "virtualMachines");
        if (!servers) return servers.error();
        auto statuses = arm_.list(std::string(compute) + "virtualMachines?statusOnly=true");
        if (!statuses) return statuses.error();
        auto addresses = arm_.list(std::string(network) + "publicIPAddresses");
        if (!addresses) return addresses.error();
        return understood("Azure", [&]() -> Result<std::vector<Machine>> {
            std::map<std::string, Json> server_in, view_in, address_in;
            for (const auto& each : *servers) server_in[group_in(each.at("id"))] = each;
            for (const auto& each : *statuses)
                view_in[group_in(each.at("id"))] = each.at("properties").value("instanceView", Json::object());
            for (const auto& each : *addresses) address_in[group_in(each.at("id"))] = each;
            std::vector<Machine> machines;
            for (const auto& group : *groups) {
                const std::string key = lower(group.at("name"));
                auto machine = describe(group, server_in[key], view_in[key], address_in[key]);
                if (!machine) return machine.error();
                machines.push_back(*machine);
            }
            return machines;
        });
    }

    // Deallocated, not switched off: only so does Azure stop billing.
    Result<> stop(const std::string& id) override {
        auto now = machine(id);
        if (!now) return now.error();
        if (now->state == MachineState::stopped && !now->price.billed_while_stopped) return Ok{};
        return done(arm_.act("POST", server_path(id, now->name) + "/deallocate"));
    }

    Result<> start(const std::string& id) override {
        auto now = machine(id);
        if (!now) return now.error();
        if (now->state == MachineState::running || now->state == MachineState::starting) return Ok{};
        if (now->offer.empty())
            return Error{Error::Kind::remote, "'" + now->name + "' at Azure was never finished, and has no machine",
                         "`tnr delete " + now->name + "`, then start it again"};
        auto started = arm_.act("POST", server_path(id, now->name) + "/start");
        if (!started && arm_.sold_out()) {
            auto all = offers_in(now->region);
            return sold_out({.name = now->offer, .region = now->region}, started.error(),
                            all ? *all : std::vector<Offer>{});
        }
        return done(started);
    }

    Result<> destroy(const std::string& id) override {
        return understood("Azure", [&]() -> Result<> {
            auto group = arm_.get(group_path(id));
            if (!group && group.error().kind == Error::Kind::not_found) return Ok{};
            if (!group) return group.error();
            if (tag_in(*group).empty())
                return Error{Error::Kind::usage,
                             "the resource group '" + id + "' at Azure is not tnr's: it has no tag `tnr`"};
            return is_going(*group) ? wait_until_gone(id) : remove_group(id);
        });
    }

    // A group of that name that is not ours is none.
    Result<std::vector<Leftover>> leftovers(const std::string& machine) override {
        const std::string name = group_of(machine);
        auto group = arm_.get(group_path(name));
        if (!group && group.error().kind != Error::Kind::not_found) return group.error();
        return understood("Azure", [&]() -> Result<std::vector<Leftover>> {
            if (!group || tag_in(*group).empty()) return std::vector<Leftover>{};
            return std::vector<Leftover>{{name, "resource group " + name}};
        });
    }
    Result<> remove_leftover(const Leftover& leftover) override { return destroy(leftover.id); }

    Result<> resize(const std::string& id, const std::string& offer) override {
        auto now = machine(id);
        if (!now) return now.error();
        return done(arm_.act("PATCH", server_path(id, now->name),
                             {{"properties", {{"hardwareProfile", {{"vmSize", offer}}}}}}));
    }

    // Its name is part of Azure's name for its group.
    Result<> snapshot(const std::string& id, const std::string& name) override {
        return understood("Azure", [&]() -> Result<> {
            const std::string allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_";
            if (name.empty() || name.size() > 60 || name.find_first_not_of(allowed) != std::string::npos)
                return Error{Error::Kind::usage, "'" + name + "' cannot be a snapshot's name at Azure",
                             "a name has up to 60 small letters, digits, dashes and underscores"};
            auto now = machine(id);
            if (!now) return now.error();
            auto server = arm_.get(server_path(id, now->name));
            if (!server) return server.error();
            if (arm_.get(group_path(snapshot_group(name))))
                return Error{Error::Kind::usage, "there is a snapshot '" + name + "' at Azure already",
                             "choose another name"};
            const std::string disk =
                server->at("properties").at("storageProfile").at("osDisk").at("managedDisk").at("id");
            auto group = arm_.act("PUT", group_path(snapshot_group(name)),
                                  {{"location", now->region}, {"tags", {{"tnr-snapshot", now->name}}}});
            if (!group) return group.error();
            const Json body = {
                {"location", now->region},
                {"tags", {{"tnr-snapshot", now->name}}},
                {"sku", {{"name", "Standard_LRS"}}},
                {"properties",
                 {{"incremental", true}, {"creationData", {{"createOption", "Copy"}, {"sourceResourceId", disk}}}}}};
            auto made = arm_.act("PUT", snapshot_path(name), body);
            if (!made && made.error().kind != Error::Kind::network) (void)remove_group(snapshot_group(name));
            return done(made);
        });
    }

    // What an incremental snapshot takes, Azure does not tell, so neither size nor price are known.
    Result<std::vector<Snapshot>> snapshots() override {
        auto found = arm_.list(std::string(compute) + "snapshots");
        if (!found) return found.error();
        return understood("Azure", [&]() -> Result<std::vector<Snapshot>> {
            std::vector<Snapshot> all;
            for (const auto& each : *found) {
                if (!each.value("tags", Json::object()).contains("tnr-snapshot")) continue;
                const Json& properties = each.at("properties");
                all.push_back({.id = each.at("name"),
                               .name = each.at("name"),
                               .created = http::utc_in(properties.value("timeCreated", "")),
                               .ready = properties.value("provisioningState", "") == "Succeeded" &&
                                        properties.value("completionPercent", 100.0) >= 100});
            }
            return all;
        });
    }

    Result<> delete_snapshot(const std::string& id) override {
        auto there = arm_.get(group_path(snapshot_group(id)));
        if (!there && there.error().kind == Error::Kind::not_found) return Ok{};
        return there ? remove_group(snapshot_group(id)) : Result<>(there.error());
    }

    Result<> open_ports(const std::string& id, const std::vector<int>& ports) override {
        const Json rule = {{"properties", firewall_rule(ports).at("properties")}};
        return done(
            arm_.act("PUT", group_path(id) + network + "networkSecurityGroups/firewall/securityRules/tcp", rule));
    }

    // Of the whole subscription, ours and not.
    Result<Costs> costs() override {
        const Json question = {
            {"type", "ActualCost"},
            {"timeframe", "MonthToDate"},
            {"dataset",
             {{"granularity", "None"}, {"aggregation", {{"totalCost", {{"name", "Cost"}, {"function", "Sum"}}}}}}}};
        auto answer = arm_.act("POST", "/providers/Microsoft.CostManagement/query", question);
        if (!answer) return answer.error();
        return understood("Azure", [&]() -> Result<Costs> {
            Costs costs{.source = "Azure's Cost Management, the whole subscription", .date = world_.now()};
            const Json& properties = answer->at("properties");
            const Json& columns = properties.at("columns");
            const Json& rows = properties.at("rows");
            for (size_t i = 0; i < columns.size(); ++i) {
                if (columns[i].at("name") == "Currency" && !rows.empty()) costs.currency = rows[0].at(i);
                if (columns[i].at("name") != "Cost") continue;
                costs.this_month = 0;  // no row: nothing was billed
                for (const auto& row : rows) *costs.this_month += http::balance_in(row.at(i));
            }
            return costs;
        });
    }

private:
    static Result<> done(const Result<Json>& answer) { return answer ? Result<>(Ok{}) : answer.error(); }

    static std::string server_path(const std::string& group, const std::string& machine) {
        return group_path(group) + compute + "virtualMachines/" + http::escaped(machine);
    }
    std::string location_for(const std::string& wanted) const {
        if (!wanted.empty()) return wanted;
        const std::string own = identity_.location();
        return own.empty() ? default_location : own;
    }

    Error no_location(const std::string& location) {
        auto all = arm_.list("/locations");
        if (!all) return all.error();
        auto names = understood("Azure", [&]() -> Result<std::string> {
            std::string names;
            for (const auto& each : *all) names += (names.empty() ? "" : ", ") + each.value("name", "");
            return names;
        });
        if (!names) return names.error();
        return Error{Error::Kind::usage, "there is no region '" + location + "'", "regions: " + *names};
    }

    // The location of what is there already of this machine, to go on with; "": its name is free.
    Result<std::string> place_of(const Order& order) {
        const std::string group = group_of(order.name);
        auto there = arm_.get(group_path(group));
        if (!there && there.error().kind == Error::Kind::not_found) return std::string();
        if (!there) return there.error();
        if (is_going(*there)) {
            auto gone = wait_until_gone(group);
            return gone ? Result<std::string>(std::string()) : gone.error();
        }
        auto begun = order.goes_on && tag_in(*there) == order.name ? machine(group) : Result<Machine>(Machine());
        if (!begun) return begun.error();
        if (begun->unfinished) return begun->region;
        return name_taken(order.name, ": there is a resource group " + group);
    }

    // With the list in trouble, all prices are unknown.
    Result<http::JsonApi::Dated> rates(const std::string& location) {
        if (auto kept = rates_.find(location); kept != rates_.end()) return kept->second;
        auto asked = understood("Azure", [&] {
            return prices_.daily("azure-rates-" + http::escaped(location),
                                 [&] { return ask_rates(prices_, location); });
        });
        if (!asked && asked.error().kind == Error::Kind::internal) return asked;  // the user pressed Ctrl-C
        if (!asked) asked = http::JsonApi::Dated{{{"source", "unknown: " + asked.error().what}}, world_.now()};
        return rates_[location] = *asked;
    }

    // A group without a machine in it is one that was never finished: its address costs.
    Result<Machine> describe(const Json& group, const Json& server, const Json& view, const Json& address) {
        Machine machine{.id = group.at("name"), .name = tag_in(group), .region = group.at("location")};
        auto rates = this->rates(machine.region);
        if (!rates) return rates.error();
        const std::string power = view.is_object() ? power_in(view) : "";
        int disk = 0;
        machine.state = MachineState::stopped;
        machine.unfinished = !server.is_object();
        if (server.is_object()) {
            const Json& properties = server.at("properties");
            machine.offer = properties.at("hardwareProfile").at("vmSize");
            machine.state = state_of(power);
            if (const Json& profile = properties.at("storageProfile").at("osDisk"); profile.contains("diskSizeGB"))
                disk = profile["diskSizeGB"];
        }
        if (is_going(group)) machine.state = MachineState::gone;
        if (address.is_object()) machine.address = address.at("properties").value("ipAddress", "");
        machine.price = price_of(*rates, machine.offer, disk);
        machine.price.billed_while_stopped = power == "stopped";  // switched off from inside: Azure bills on
        return machine;
    }

    static Error sold_out(const Offer& offer, const Error& why, const std::vector<Offer>& all) {
        Offer wanted = offer;
        for (const auto& each : all)
            if (each.name == offer.name) wanted = each;
        return Error{Error::Kind::remote, "'" + offer.name + "' is sold out in " + offer.region + " (" + why.what + ")",
                     nearest_offer(all, wanted)};
    }

    // Of a group; null where there is none. In a group that is being removed Azure may refuse to look.
    Result<Json> part(const std::string& path) {
        auto found = arm_.get(path);
        if (found || (found.error().kind != Error::Kind::not_found && arm_.code() != being_removed)) return found;
        return Json();
    }

    // A `tnr delete` that was interrupted has asked for it; asked again, Azure refuses.
    Result<> wait_until_gone(const std::string& group) {
        auto gone = http::poll(world_, removal_seconds_max, [&]() -> Result<bool> {
            auto there = arm_.get(group_path(group));
            if (!there && there.error().kind != Error::Kind::not_found) return there.error();
            return !there;
        });
        if (!gone) return gone.error();
        if (*gone) return Ok{};
        return Error{Error::Kind::remote, "Azure is still removing the resource group " + group + " after 20 minutes",
                     "see https://portal.azure.com"};
    }

    // A removal that a killed `tnr delete` has asked for may begin after we have looked.
    Result<> build_anew(const Order& order, const Offer& offer, const Image& image) {
        auto built = build(arm_, order, offer, image);
        if (built || arm_.code() != being_removed) return built;
        if (auto gone = wait_until_gone(group_of(order.name)); !gone) return gone;
        return build(arm_, order, offer, image);
    }

    Result<> remove_group(const std::string& group) {
        return done(arm_.act(
            "DELETE", group_path(group) + "?forceDeletionTypes=" + http::escaped("Microsoft.Compute/virtualMachines")));
    }

    CloudWorld world_;
    Identity identity_;
    ArmApi arm_;
    http::JsonApi prices_;
    std::map<std::string, http::JsonApi::Dated> rates_;  // by location: machine() is called every second
};

}  // namespace
}  // namespace tnr::azure

namespace tnr {
extern const Cloud azure_cloud;
const Cloud azure_cloud = {
    .name = "azure",
    .secrets = {{"tenant_id", "tenant id"},
                {"client_id", "application (client) id"},
                {"client_secret", "client secret"},
                {"subscription_id", "subscription id"}},
    .where_to_get =
        "https://portal.azure.com under App registrations, or all four by\n"
        "`az ad sp create-for-rbac --role Contributor --scopes /subscriptions/ID`",
    .sources =
        "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, what `az login` has stored; and last\n"
        "IDENTITY_ENDPOINT",
    .standard = azure::standard_credentials,
    .ambient = azure::ambient_credentials,
    .make = [](const Credentials& credentials, const CloudWorld& world) -> std::unique_ptr<Provider> {
        return std::make_unique<azure::Azure>(credentials, world);
    }};
}  // namespace tnr
