// Google Compute Engine, https://cloud.google.com/compute/docs/reference/rest/v1. A machine has the label `tnr` with its name, and two
// firewall rules of its own, found by its network tag `tnr-NAME`: one lets SSH in, the other, which comes after, nothing.
//
// A region of our words is one of Google's; its zones are tried one after the other until one has room. An id is "ZONE/NAME".
#include <algorithm>

#include "api_client/http/oauth.hpp"
#include "api_client/offers.hpp"
#include "api_client/providers/gcp/catalogue.hpp"
#include "api_client/providers/gcp/project_api.hpp"

namespace tnr::gcp {
namespace {

using http::Json;
using http::understood;

// Ubuntu: Google's Debian has no cloud-init, and its own agent would replace the host key that we plant.
constexpr const char* default_image = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64";
constexpr const char* label = "tnr";
constexpr int allow_priority = 900, deny_priority = 901;  // before the rules that a project begins with

std::string tag_of(const std::string& machine) {
    return "tnr-" + machine;
}
std::string allow_rule(const std::string& machine) {
    return "tnr-allow-" + machine;
}
std::string description_of_rules(const std::string& machine) {
    return "made by tnr for machine " + machine;
}
std::string deny_rule(const std::string& machine) {
    return "tnr-deny-" + machine;
}

MachineState state_of(const std::string& status) {
    if (status == "RUNNING") return MachineState::running;
    if (status == "TERMINATED" || status == "STOPPED" || status == "SUSPENDED") return MachineState::stopped;
    if (status == "STOPPING" || status == "PENDING_STOP" || status == "SUSPENDING") return MachineState::stopping;
    if (status == "DEPROVISIONING") return MachineState::gone;
    return MachineState::starting;  // PENDING, PROVISIONING, STAGING, REPAIRING
}

Json allowed_ports(const std::vector<int>& ports) {
    Json numbers = Json::array({"22"});
    for (int port : ports) numbers.push_back(std::to_string(port));
    return Json::array({{{"IPProtocol", "tcp"}, {"ports", numbers}}});
}

// Where a machine is: its id taken apart.
struct Place {
    std::string zone, name;
    std::string path() const { return "/zones/" + http::escaped(zone) + "/instances/" + http::escaped(name); }
};
Place place_of(const std::string& id) {
    const size_t slash = id.find('/');
    return slash == std::string::npos ? Place{"-", id} : Place{id.substr(0, slash), id.substr(slash + 1)};
}

class Gcp : public Provider {
public:
    Gcp(const Credentials& credentials, const CloudWorld& world)
        : world_(world), account_(credentials, world), google_(account_, world) {}

    std::string name() const override { return "gcp"; }

    Result<std::string> whoami() override {
        auto project = google_.call("GET", "");
        if (!project) return project.error();
        return understood("Google", [&]() -> Result<std::string> {
            const std::string who = account_.who();
            return "project " + project->at("name").get<std::string>() + (who.empty() ? "" : " as " + who);
        });
    }

    Result<std::vector<Offer>> offers() override { return offers_in(""); }

    // `region` may be a zone: then the offers are that zone's.
    Result<std::vector<Offer>> offers_in(const std::string& region) override {
        auto types = this->types();
        if (!types) return types.error();
        auto rates = this->rates();
        if (!rates) return rates.error();
        return understood("Google", [&]() -> Result<std::vector<Offer>> {
            std::vector<Offer> offers;
            for (const auto& [name, type] : types->body.items()) add_offers(name, type, *rates, region, offers);
            order_offers(offers);
            return offers;
        });
    }

    Result<Machine> create(const Order& order) override {
        return understood("Google", [&]() -> Result<Machine> {
            if (auto free = name_is_free(order.name); !free) return free.error();
            auto all = offers_in(order.region);
            if (!all) return all.error();
            auto offer = choose_offer(*all, order);
            if (!offer) return offer.error();
            auto disk = first_disk(order);
            if (!disk) return disk.error();
            if (auto ruled = ensure_rules(order.name); !ruled) return ruled.error();
            auto made = insert_somewhere(order, *offer, *disk, *all);
            // A refusal is certain; a broken connection is not, and its machine would want its rules.
            if (!made && made.error().kind != Error::Kind::network) (void)remove_leftovers(order.name);
            return made;
        });
    }

    Result<Machine> machine(const std::string& id) override {
        auto instance = google_.call("GET", place_of(id).path());
        if (!instance) return instance.error();
        return understood("Google", [&] { return describe(*instance); });
    }

    Result<std::vector<Machine>> machines() override {
        return understood("Google", [&]() -> Result<std::vector<Machine>> {
            auto zones =
                google_.all("/aggregated/instances?maxResults=500&filter=" + http::escaped("labels.tnr:*"), "items");
            if (!zones) return zones.error();
            std::vector<Machine> machines;
            for (const auto& zone : *zones) {
                for (const auto& instance : zone.value("instances", Json::array())) {
                    auto machine = describe(instance);
                    if (!machine) return machine.error();
                    machines.push_back(*machine);
                }
            }
            return machines;
        });
    }

    Result<> stop(const std::string& id) override {
        auto now = machine(id);
        if (!now) return now.error();
        if (now->state == MachineState::stopped) return Ok{};
        return google_.act(place_of(id).path() + "/stop");
    }

    Result<> start(const std::string& id) override {
        auto now = machine(id);
        if (!now) return now.error();
        if (now->state == MachineState::running || now->state == MachineState::starting) return Ok{};
        auto started = google_.act(place_of(id).path() + "/start");
        if (started || !google_.sold_out()) return started;
        return Error{Error::Kind::remote,
                     "'" + now->offer + "' is sold out in " + place_of(id).zone + " (" + started.error().what + ")",
                     "a snapshot of it can be started in another zone; or try again in a while"};
    }

    Result<> destroy(const std::string& id) override {
        return understood("Google", [&]() -> Result<> {
            const Place place = place_of(id);
            auto instance = google_.call("GET", place.path());
            if (!instance && instance.error().kind != Error::Kind::not_found) return instance.error();
            if (!instance) return remove_leftovers(place.name);
            auto deleted = google_.call("DELETE", place.path() + "?requestId=" + http::new_uuid());
            if (!deleted && deleted.error().kind != Error::Kind::not_found) return deleted.error();
            if (deleted)  // its rules are still used until then
                if (auto done = google_.wait(*deleted); !done) return done;
            return remove_leftovers(instance->value("labels", Json::object()).value(label, place.name));
        });
    }

    // Rules have no labels; what they are for is in their description.
    Result<std::vector<Leftover>> leftovers(const std::string& machine) override {
        auto alive = machines();
        if (!alive) return alive.error();
        return understood("Google", [&]() -> Result<std::vector<Leftover>> {
            std::vector<Leftover> left;
            if (has(*alive, machine)) return left;
            for (const auto& rule : {allow_rule(machine), deny_rule(machine)}) {
                auto there = google_.call("GET", "/global/firewalls/" + rule);
                if (!there && there.error().kind != Error::Kind::not_found) return there.error();
                if (there && there->value("description", "") == description_of_rules(machine))
                    left.push_back({rule, "firewall rule " + rule});
            }
            return left;
        });
    }
    Result<> remove_leftover(const Leftover& leftover) override {
        return google_.remove("/global/firewalls/" + leftover.id);
    }

    Result<> resize(const std::string& id, const std::string& offer) override {
        const Place place = place_of(id);
        return google_.act(place.path() + "/setMachineType",
                           {{"machineType", "zones/" + place.zone + "/machineTypes/" + offer}});
    }

    // Its name is Google's name for it: small letters, digits and dashes.
    Result<> snapshot(const std::string& id, const std::string& name) override {
        return understood("Google", [&]() -> Result<> {
            auto instance = google_.call("GET", place_of(id).path());
            if (!instance) return instance.error();
            const Json body = {{"name", name},
                               {"sourceDisk", "zones/" + place_of(id).zone + "/disks/" +
                                                  last_part(instance->at("disks").at(0).at("source"))},
                               {"labels", {{label, instance->value("labels", Json::object()).value(label, "")}}}};
            auto begun = google_.call("POST", "/global/snapshots?requestId=" + http::new_uuid(), body, true);
            if (!begun && google_.code() == "alreadyExists")
                return Error{Error::Kind::usage, "there is a snapshot '" + name + "' at Google already",
                             "choose another name"};
            if (!begun) return begun.error();
            return Ok{};
        });
    }

    Result<std::vector<Snapshot>> snapshots() override {
        auto rates = this->rates();
        if (!rates) return rates.error();
        return understood("Google", [&]() -> Result<std::vector<Snapshot>> {
            auto found =
                google_.all("/global/snapshots?maxResults=500&filter=" + http::escaped("labels.tnr:*"), "items");
            if (!found) return found.error();
            std::vector<Snapshot> all;
            for (const auto& each : *found) {
                Snapshot snapshot{.id = each.at("name"),
                                  .name = each.at("name"),
                                  .size_gib = std::stod(each.value("storageBytes", "0")) / (1 << 30),
                                  .created = http::utc_in(each.value("creationTimestamp", "")),
                                  .ready = each.at("status") == "READY",
                                  .currency = rates->body.value("currency", "")};
                const Json places = each.value("storageLocations", Json::array());
                if (!places.empty() && snapshot.size_gib > 0)
                    snapshot.per_month = snapshot_month(rates->body, places[0], snapshot.size_gib);
                all.push_back(snapshot);
            }
            return all;
        });
    }

    Result<> delete_snapshot(const std::string& id) override {
        return google_.remove("/global/snapshots/" + http::escaped(id));
    }

    Result<> open_ports(const std::string& id, const std::vector<int>& ports) override {
        return understood("Google", [&]() -> Result<> {
            auto machine = this->machine(id);
            if (!machine) return machine.error();
            if (auto ruled = ensure_rules(machine->name); !ruled) return ruled;
            auto changed = google_.call("PATCH", "/global/firewalls/" + allow_rule(machine->name),
                                        {{"allowed", allowed_ports(ports)}});
            return changed ? google_.wait(*changed) : Result<>(changed.error());
        });
    }

private:
    Result<http::JsonApi::Dated> types() {
        if (types_) return *types_;
        auto asked = google_.machine_types();
        if (asked) types_ = *asked;
        return asked;
    }

    // Without the right to read the catalogue, or with the catalogue in trouble, all prices are unknown.
    Result<http::JsonApi::Dated> rates() {
        if (rates_) return *rates_;
        auto asked = google_.rates();
        if (!asked && asked.error().kind == Error::Kind::internal) return asked;  // the user pressed Ctrl-C
        rates_ = asked ? *asked : http::JsonApi::Dated{{{"source", "unknown: " + asked.error().what}}, world_.now()};
        return *rates_;
    }

    static void add_offers(const std::string& name, const Json& type, const http::JsonApi::Dated& rates,
                           const std::string& wanted, std::vector<Offer>& offers) {
        std::string before;
        for (const auto& each : type.at("zones")) {
            const std::string zone = each, region = wanted == zone ? zone : region_of(zone);
            if (region == before) continue;  // zones of a region follow each other
            before = region;
            offers.push_back({.name = name,
                              .region = region,
                              .cpus = type.at("cpus"),
                              .memory_mib = type.at("memory_mib"),
                              .disk_gib = disk_gib_min,
                              .price = price_of(rates, name, type, region_of(zone), disk_gib_min)});
        }
    }

    // The default first: where gcloud makes things, else the cheapest; where prices are unknown, E2 in Iowa, which is
    // the cheapest as a rule.
    void order_offers(std::vector<Offer>& offers) const {
        std::stable_partition(offers.begin(), offers.end(), [](const Offer& offer) {
            return offer.name.compare(0, 3, "e2-") == 0 && offer.region == "us-central1";
        });
        default_first(offers);
        const std::string home = account_.region();
        auto end =
            std::stable_partition(offers.begin(), offers.end(), [&](const Offer& o) { return o.region == home; });
        std::vector<Offer> near(offers.begin(), end);
        default_first(near);
        std::copy(near.begin(), near.end(), offers.begin());
    }

    Result<Machine> describe(const Json& instance) {
        auto types = this->types();
        if (!types) return types.error();
        auto rates = this->rates();
        if (!rates) return rates.error();
        const std::string zone = last_part(instance.at("zone")), type = last_part(instance.at("machineType"));
        const Json& disk = instance.at("disks").at(0);
        Machine machine{.id = zone + "/" + instance.at("name").get<std::string>(),
                        .name = instance.value("labels", Json::object()).value(label, ""),
                        .state = state_of(instance.at("status")),
                        .region = region_of(zone),
                        .offer = type};
        if (machine.name.empty()) machine.name = instance.at("name");
        machine.price = price_of(*rates, type, types->body.value(type, Json()), machine.region,
                                 std::stoi(disk.value("diskSizeGb", "0")));
        for (const auto& way : instance.at("networkInterfaces").at(0).value("accessConfigs", Json::array()))
            machine.address = way.value("natIP", "");
        return machine;
    }

    // From the default image, a snapshot of ours, or an image by its path ("projects/…/global/images/…").
    Result<Json> first_disk(const Order& order) {
        Json disk = {{"diskSizeGb", std::to_string(disk_gib_min)}, {"labels", {{label, order.name}}}};
        if (order.image.empty() || order.image.find('/') != std::string::npos) {
            disk["sourceImage"] = order.image.empty() ? default_image : order.image;
            return disk;
        }
        auto snapshot = google_.call("GET", "/global/snapshots/" + http::escaped(order.image));
        if (!snapshot && snapshot.error().kind == Error::Kind::not_found)
            return Error{Error::Kind::usage, "there is no snapshot '" + order.image + "' at Google",
                         "`tnr snapshot list` shows yours; an image is projects/PROJECT/global/images/NAME"};
        if (!snapshot) return snapshot;
        disk["sourceSnapshot"] = "global/snapshots/" + order.image;
        disk["diskSizeGb"] = std::to_string(std::max(disk_gib_min, std::stoi(snapshot->value("diskSizeGb", "0"))));
        return disk;
    }

    // Zones of the offer's region that have the type; gcloud's own first.
    std::vector<std::string> zones_of(const Offer& offer) {
        std::vector<std::string> zones;
        for (const auto& each : types_->body.at(offer.name).at("zones")) {
            const std::string zone = each;
            if (zone == offer.region || region_of(zone) == offer.region) zones.push_back(zone);
        }
        const std::string home = account_.zone();
        std::stable_partition(zones.begin(), zones.end(), [&](const std::string& zone) { return zone == home; });
        return zones;
    }

    Result<Machine> insert_somewhere(const Order& order, const Offer& offer, const Json& disk,
                                     const std::vector<Offer>& all) {
        Error last{Error::Kind::remote, "Google: no zone"};
        for (const auto& zone : zones_of(offer)) {
            if (order.on_step) order.on_step("asking for " + offer.name + " in " + zone);
            auto made = insert(order, offer, zone, disk);
            if (made || !google_.sold_out()) return made;
            last = made.error();
        }
        return Error{Error::Kind::remote,
                     "'" + offer.name + "' is sold out in " + offer.region + " (" + last.what + ")",
                     nearest_offer(all, offer)};
    }

    Result<Machine> insert(const Order& order, const Offer& offer, const std::string& zone, Json disk) {
        disk["diskType"] = "zones/" + zone + "/diskTypes/" + disk_type;
        const Json metadata = Json::array({{{"key", "user-data"}, {"value", order.user_data}},
                                           {{"key", "block-project-ssh-keys"}, {"value", "TRUE"}},
                                           {{"key", "enable-oslogin"}, {"value", "FALSE"}}});
        // No service account: who gets into the machine gets no rights at Google.
        const Json body = {{"name", order.name},
                           {"machineType", "zones/" + zone + "/machineTypes/" + offer.name},
                           {"labels", {{label, order.name}}},
                           {"tags", {{"items", {tag_of(order.name)}}}},
                           {"metadata", {{"items", metadata}}},
                           {"disks", Json::array({{{"boot", true}, {"autoDelete", true}, {"initializeParams", disk}}})},
                           {"networkInterfaces",
                            Json::array({{{"network", "global/networks/default"},
                                          {"accessConfigs",
                                           Json::array({{{"type", "ONE_TO_ONE_NAT"}, {"name", "External NAT"}}})}}})}};
        // With a request id, Google makes one machine however often it is asked.
        auto operation =
            google_.call("POST", "/zones/" + zone + "/instances?requestId=" + http::new_uuid(), body, true);
        if (!operation && google_.code() == "alreadyExists") return name_taken(order.name);
        if (!operation) return operation.error();
        if (auto done = google_.wait(*operation); !done) return done.error();
        return machine(zone + "/" + order.name);
    }

    Result<> ensure_rule(const std::string& name, const std::string& machine, int priority, Json what) {
        auto there = google_.call("GET", "/global/firewalls/" + name);
        if (there || there.error().kind != Error::Kind::not_found) return there ? Result<>(Ok{}) : there.error();
        what.update({{"name", name},
                     {"description", description_of_rules(machine)},
                     {"network", "global/networks/default"},
                     {"direction", "INGRESS"},
                     {"priority", priority},
                     {"sourceRanges", {"0.0.0.0/0"}},
                     {"targetTags", {tag_of(machine)}}});
        auto operation = google_.call("POST", "/global/firewalls?requestId=" + http::new_uuid(), what, true);
        if (!operation && operation.error().kind == Error::Kind::not_found)
            return Error{
                Error::Kind::usage, operation.error().what,
                "machines use the network 'default': `gcloud compute networks create default --subnet-mode=auto`"};
        return operation ? google_.wait(*operation) : Result<>(operation.error());
    }

    Result<> ensure_rules(const std::string& machine) {
        auto allow = ensure_rule(allow_rule(machine), machine, allow_priority, {{"allowed", allowed_ports({})}});
        if (!allow) return allow;
        return ensure_rule(deny_rule(machine), machine, deny_priority,
                           {{"denied", Json::array({{{"IPProtocol", "all"}}})}});
    }

    CloudWorld world_;
    Account account_;
    ProjectApi google_;
    std::optional<http::JsonApi::Dated> types_, rates_;  // asked for once: machine() is called every second
};

}  // namespace
}  // namespace tnr::gcp

namespace tnr {
extern const Cloud gcp_cloud;
const Cloud gcp_cloud = {
    .name = "gcp",
    .secrets = {{.name = "key", .what = "service account's key (JSON)", .file = true}},
    .where_to_get =
        "https://console.cloud.google.com/iam-admin/serviceaccounts: role Compute Admin, then Keys, Add key, JSON",
    .sources =
        "GOOGLE_APPLICATION_CREDENTIALS, gcloud's application_default_credentials.json or account; and last\n"
        "the metadata server",
    .standard = gcp::standard_credentials,
    .ambient = gcp::ambient_credentials,
    .make = [](const Credentials& credentials, const CloudWorld& world) -> std::unique_ptr<Provider> {
        return std::make_unique<gcp::Gcp>(credentials, world);
    }};
}  // namespace tnr
