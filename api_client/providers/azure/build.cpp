// One part after the other, for each names the ones before.
#include "api_client/providers/azure/build.hpp"

#include "api_client/http/oauth.hpp"

namespace tnr::azure {
namespace {

using http::Json;

constexpr const char* default_image = "Debian:debian-12:12-gen2:latest";  // as az writes it

// "publisher:offer:sku:version", taken apart; empty where it is no such thing.
Json image_reference(const std::string& urn) {
    static constexpr const char* names[] = {"publisher", "offer", "sku", "version"};
    Json reference;
    size_t begin = 0;
    for (const char* name : names) {
        const size_t end = urn.find(':', begin);
        const bool last = name == names[3];
        if (begin > urn.size() || (end == std::string::npos) != last) return {};
        reference[name] = urn.substr(begin, last ? end : end - begin);
        begin = end + 1;
    }
    return reference;
}

}  // namespace

std::string group_of(const std::string& machine) {
    return "tnr-" + machine;
}
std::string snapshot_group(const std::string& snapshot) {
    return "tnr.snapshot." + snapshot;
}
std::string group_path(const std::string& group) {
    return "/resourceGroups/" + http::escaped(group);
}

std::string snapshot_path(const std::string& name) {
    return group_path(snapshot_group(name)) + compute + "snapshots/" + http::escaped(name);
}

Json firewall_rule(const std::vector<int>& ports) {
    Json ranges = Json::array({"22"});
    for (int port : ports) ranges.push_back(std::to_string(port));
    return {{"name", "tcp"},
            {"properties",
             {{"priority", 1000},
              {"direction", "Inbound"},
              {"access", "Allow"},
              {"protocol", "Tcp"},
              {"sourceAddressPrefix", "*"},
              {"sourcePortRange", "*"},
              {"destinationAddressPrefix", "*"},
              {"destinationPortRanges", ranges}}}};
}

Result<Image> find_image(ArmApi& arm, const std::string& name) {
    if (name.empty() || name.find(':') != std::string::npos) {
        Json reference = image_reference(name.empty() ? default_image : name);
        if (!reference.is_null()) return Image{.reference = reference};
        return Error{Error::Kind::usage, "'" + name + "' is no image at Azure",
                     "a snapshot's name, or PUBLISHER:OFFER:SKU:VERSION as in " + std::string(default_image)};
    }
    auto snapshot = arm.get(snapshot_path(name));
    if (snapshot) return Image{.snapshot = snapshot->at("id"), .location = snapshot->at("location")};
    if (snapshot.error().kind != Error::Kind::not_found) return snapshot.error();
    return Error{Error::Kind::usage, "there is no snapshot '" + name + "' at Azure", "`tnr snapshot list` shows yours"};
}

Result<> build(ArmApi& arm, const Order& order, const Offer& offer, Image image) {
    const std::string group = group_path(group_of(order.name));
    auto put = [&](const std::string& rest, Json body) -> Result<std::string> {
        body["location"] = offer.region;
        body["tags"] = {{label, order.name}};
        auto made = arm.act("PUT", group + rest, body);
        return made ? arm.id_of(group + rest) : Result<std::string>(made.error());
    };
    if (order.on_step) order.on_step("making its network");
    if (auto made = put("", Json::object()); !made) return made.error();
    auto firewall = put(std::string(network) + "networkSecurityGroups/firewall",
                        {{"properties", {{"securityRules", Json::array({firewall_rule({})})}}}});
    if (!firewall) return firewall.error();
    auto address = put(std::string(network) + "publicIPAddresses/address",
                       {{"sku", {{"name", "Standard"}}},
                        {"properties", {{"publicIPAllocationMethod", "Static"}, {"publicIPAddressVersion", "IPv4"}}}});
    if (!address) return address.error();
    const Json subnet = {
        {"name", "default"},
        {"properties", {{"addressPrefix", "10.0.0.0/24"}, {"networkSecurityGroup", {{"id", *firewall}}}}}};
    auto net = put(std::string(network) + "virtualNetworks/network",
                   {{"properties",
                     {{"addressSpace", {{"addressPrefixes", {"10.0.0.0/16"}}}}, {"subnets", Json::array({subnet})}}}});
    if (!net) return net.error();
    const Json ip = {
        {"name", "main"},
        {"properties", {{"subnet", {{"id", *net + "/subnets/default"}}}, {"publicIPAddress", {{"id", *address}}}}}};
    auto card =
        put(std::string(network) + "networkInterfaces/card",
            {{"properties", {{"ipConfigurations", Json::array({ip})}, {"networkSecurityGroup", {{"id", *firewall}}}}}});
    if (!card) return card.error();
    if (!image.snapshot
             .empty()) {  // an image made from a snapshot runs cloud-init as a new machine does; its disk alone would not
        if (order.on_step) order.on_step("making an image of the snapshot");
        const Json disk = {{"osType", "Linux"}, {"osState", "Generalized"}, {"snapshot", {{"id", image.snapshot}}}};
        auto made = put(std::string(compute) + "images/restored",
                        {{"properties", {{"hyperVGeneration", "V2"}, {"storageProfile", {{"osDisk", disk}}}}}});
        if (!made) return made.error();
        image.reference = {{"id", *made}};
    }
    if (order.on_step) order.on_step("asking for " + offer.name + " in " + offer.region);
    Json linux_settings = {{"disablePasswordAuthentication", true}};
    const std::string user = order.user.empty() ? "tnr" : order.user;
    if (!order.authorised_key.empty())
        linux_settings["ssh"] = {{"publicKeys", Json::array({{{"path", "/home/" + user + "/.ssh/authorized_keys"},
                                                              {"keyData", order.authorised_key}}})}};
    auto server = put(
        std::string(compute) + "virtualMachines/" + http::escaped(order.name),
        {{"properties",
          {{"hardwareProfile", {{"vmSize", offer.name}}},
           {"storageProfile",
            {{"imageReference", image.reference},
             {"osDisk",
              {{"createOption", "FromImage"},
               {"deleteOption", "Delete"},
               {"diskSizeGB", disk_gib},
               {"managedDisk", {{"storageAccountType", disk_kind}}}}}}},
           {"osProfile",
            {{"computerName", order.name},
             {"adminUsername", user},
             {"customData", http::base64(order.user_data)},
             {"linuxConfiguration", linux_settings}}},
           {"networkProfile",
            {{"networkInterfaces", Json::array({{{"id", *card}, {"properties", {{"deleteOption", "Delete"}}}}})}}}}}});
    if (!server) return server.error();
    if (!image.snapshot.empty())  // it costs, and nothing needs it any more
        if (auto removed = arm.act("DELETE", group + compute + "images/restored"); !removed) return removed.error();
    return Ok{};
}

}  // namespace tnr::azure
