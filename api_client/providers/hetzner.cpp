// Hetzner Cloud, https://docs.hetzner.cloud/. Everything that we make carries the label `tnr` with the machine's name: the server,
// a firewall and an SSH key of its own (without a key, Hetzner would mail a root password). Names of servers are unique
// in a project, so an order that got lost cannot make two.
#include <algorithm>

#include "api_client/base/text.hpp"
#include "api_client/http/json_api.hpp"
#include "api_client/offers.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::hetzner {
namespace {

using http::Json;
using http::understood;

constexpr const char* default_image = "debian-12";
constexpr const char* label = "tnr";
constexpr int action_seconds_max = 600;   // a snapshot of a full disk takes minutes
constexpr int shutdown_seconds_max = 60;  // then the plug is pulled
constexpr int deleting_seconds_max = 60;  // a server that is being deleted has gone
constexpr int locked_seconds_max = 60;    // another action on the same server has to end first
constexpr double gib_per_gb = 1e9 / (1 << 30);

std::string next_page(const std::string& path, const Json& page) {
    const Json& next = page.at("meta").at("pagination").at("next_page");
    if (next.is_null()) return "";
    return path + (path.find('?') == std::string::npos ? "?" : "&") + "page=" + std::to_string(next.get<int>());
}

std::string id_of(const Json& thing) {
    return std::to_string(thing.at("id").get<int64_t>());
}

// "type base64", without the comment.
std::string key_itself(const std::string& line) {
    const size_t space = line.find(' ');
    return space == std::string::npos ? line : line.substr(0, line.find(' ', space + 1));
}

MachineState state_of(const std::string& status) {
    if (status == "running") return MachineState::running;
    if (status == "off") return MachineState::stopped;
    if (status == "stopping") return MachineState::stopping;
    if (status == "deleting") return MachineState::gone;
    return MachineState::starting;  // initializing, starting, migrating, rebuilding, unknown
}

Json firewall_rules(const std::vector<int>& ports) {
    const Json everywhere = {"0.0.0.0/0", "::/0"};
    Json rules = Json::array({{{"direction", "in"}, {"protocol", "icmp"}, {"source_ips", everywhere}}});
    for (int port : ports)
        rules.push_back(
            {{"direction", "in"}, {"protocol", "tcp"}, {"port", std::to_string(port)}, {"source_ips", everywhere}});
    return rules;
}

// The entry of a list of prices for one location; null where there is none.
Json price_at(const Json& prices, const std::string& location) {
    for (const auto& price : prices)
        if (price.at("location") == location) return price;
    return Json();
}

// What of the price list is kept for a day: {"currency", "addresses": {"fsn1": {"hour", "month"}}, "snapshot_gb_month"}.
Json rates_in(const Json& pricing) {
    Json addresses = Json::object();
    for (const auto& kind : pricing.at("primary_ips"))
        if (kind.at("type") == "ipv4")
            for (const auto& price : kind.at("prices"))
                addresses[price.at("location").get<std::string>()] = {
                    {"hour", http::amount_in(price.at("price_hourly").at("net"))},
                    {"month", http::amount_in(price.at("price_monthly").at("net"))}};
    return {{"currency", pricing.at("currency").get<std::string>()},
            {"addresses", addresses},
            {"snapshot_gb_month", http::amount_in(pricing.at("image").at("price_per_gb_month").at("net"))}};
}

Price price_of(const Json& server_type, const std::string& location, const http::JsonApi::Dated& rates) {
    Price price{.currency = rates.body.value("currency", ""),
                .disk = 0,
                .billed_while_stopped = true,
                .source = rates.body.value("source", "Hetzner's /pricing, without VAT"),
                .date = rates.date};
    if (price.currency.empty()) return price;
    std::optional<double> machine_month;
    if (Json machine = price_at(server_type.at("prices"), location); !machine.is_null()) {
        price.machine = http::amount_in(machine.at("price_hourly").at("net"));
        machine_month = http::amount_in(machine.at("price_monthly").at("net"));
    }
    const Json& addresses = rates.body.at("addresses");
    if (!addresses.contains(location)) return price;
    price.address = addresses.at(location).at("hour").get<double>();
    if (machine_month) price.month = *machine_month + addresses.at(location).at("month").get<double>();
    return price;
}

bool is_sold_out(const std::string& code) {
    return code == "resource_unavailable" || code == "placement_error";
}

class Hetzner : public Provider {
public:
    Hetzner(const Credentials& credentials, const CloudWorld& world)
        : world_(world),
          api_({.cloud = "Hetzner",
                .base = world.variable("HCLOUD_ENDPOINT").empty() ? "https://api.hetzner.cloud/v1"
                                                                  : world.variable("HCLOUD_ENDPOINT"),
                .token = credentials.values.at("token"),
                .sign_in = "the token came from " + credentials.source + "; `tnr login hetzner` takes a new one",
                .refusal = [](const Json& body) -> http::Refusal {
                    if (!body.is_object() || !body.contains("error")) return {};
                    return {body["error"].value("code", ""), body["error"].value("message", "")};
                }},
               world) {}

    std::string name() const override { return "hetzner"; }

    // Tokens belong to projects, and a project does not tell its name.
    Result<std::string> whoami() override {
        auto servers = api_.get("/servers?per_page=1");
        if (!servers) return servers.error();
        return understood("Hetzner", [&]() -> Result<std::string> {
            const size_t count = servers->at("meta").at("pagination").value("total_entries", 0);
            return "a project with " + counted(count, "server");
        });
    }

    Result<std::vector<Offer>> offers() override {
        auto pricing = prices();
        if (!pricing) return pricing.error();
        auto types = list("/server_types?per_page=50", "server_types");
        if (!types) return types.error();
        return understood("Hetzner", [&]() -> Result<std::vector<Offer>> {
            std::vector<Offer> offers;
            for (const auto& type : *types) add_offers(type, *pricing, offers);
            default_first(offers);
            return offers;
        });
    }

    Result<Machine> create(const Order& order) override {
        return understood("Hetzner", [&]() -> Result<Machine> {
            auto there = called(order.name);
            if (!there) return there.error();
            if (*there) return name_taken(order.name);
            auto all = offers();
            if (!all) return all.error();
            auto offer = choose_offer(*all, order);
            if (!offer) return offer.error();
            auto key = ensure_key(order.name, order.authorised_key);
            if (!key) return key.error();
            auto firewall = ensure_firewall(order.name);
            if (!firewall) return firewall.error();
            auto made = order_server(order, *offer, *key, *firewall, *all);
            // A refusal is certain; a broken connection is not, and its server would want its firewall.
            if (!made && made.error().kind != Error::Kind::network) (void)remove_leftovers(order.name);
            return made;
        });
    }

    Result<Machine> machine(const std::string& id) override {
        auto server = api_.get("/servers/" + http::escaped(id));
        if (!server) return server.error();
        return understood("Hetzner", [&] { return describe(server->at("server")); });
    }

    Result<std::vector<Machine>> machines() override {
        auto servers = list(std::string("/servers?per_page=50&label_selector=") + label, "servers");
        if (!servers) return servers.error();
        return understood("Hetzner", [&]() -> Result<std::vector<Machine>> {
            std::vector<Machine> machines;
            for (const auto& server : *servers) {
                auto machine = describe(server);
                if (!machine) return machine.error();
                machines.push_back(*machine);
            }
            return machines;
        });
    }

    Result<> stop(const std::string& id) override {
        auto now = status(id);
        if (!now) return now.error();
        if (*now == "off") return Ok{};
        if (auto asked = act(id, "shutdown"); !asked) return asked.error();
        auto off = http::poll(world_, shutdown_seconds_max, [&]() -> Result<bool> {
            auto status = this->status(id);
            if (!status) return status.error();
            return *status == "off";
        });
        if (!off) return off.error();
        if (*off) return Ok{};
        return act_and_wait(id, "poweroff");
    }

    Result<> start(const std::string& id) override {
        auto now = status(id);
        if (!now) return now.error();
        if (*now != "off" && *now != "stopping") return Ok{};
        return act_and_wait(id, "poweron");
    }

    Result<> destroy(const std::string& id) override {
        return understood("Hetzner", [&]() -> Result<> {
            auto server = api_.get("/servers/" + http::escaped(id));
            if (!server && server.error().kind == Error::Kind::not_found) return remove_leftovers("");
            if (!server) return server.error();
            auto reply = api_.call("DELETE", "/servers/" + http::escaped(id));
            if (!reply) return reply.error();
            if (!reply->ok() && reply->status != 404) return api_.refused(*reply);
            // A firewall in use cannot be deleted.
            if (reply->ok())
                if (auto done = wait(reply->body.at("action")); !done) return done;
            const Json& was = server->at("server");
            return remove_leftovers(was.at("labels").value(label, was.value("name", "")));
        });
    }

    // "": of all machines that are no more.
    Result<std::vector<Leftover>> leftovers(const std::string& machine) override {
        auto alive = machines();
        if (!alive) return alive.error();
        return understood("Hetzner", [&]() -> Result<std::vector<Leftover>> {
            std::vector<Leftover> left;
            for (const auto& [list, word] : {std::pair{"firewalls", "firewall "}, {"ssh_keys", "SSH key "}}) {
                const std::string path = std::string("/") + list;
                auto ours = this->list(path + "?per_page=50&label_selector=" + label, list);
                if (!ours) return ours.error();
                for (const auto& thing : *ours) {
                    const std::string owner = thing.at("labels").value(label, "");
                    if (has(*alive, owner) || (!machine.empty() && owner != machine)) continue;
                    left.push_back({path + "/" + id_of(thing), word + thing.at("name").get<std::string>()});
                }
            }
            return left;
        });
    }
    Result<> remove_leftover(const Leftover& leftover) override { return api_.remove(leftover.id); }

    // Keeps the disk's size: a larger one could never be made smaller again.
    Result<> resize(const std::string& id, const std::string& offer) override {
        return act_and_wait(id, "change_type", {{"server_type", offer}, {"upgrade_disk", false}});
    }

    Result<> snapshot(const std::string& id, const std::string& name) override {
        auto action = act(id, "create_image", {{"type", "snapshot"}, {"description", name}, {"labels", {{label, ""}}}});
        if (!action) return action.error();
        return Ok{};
    }

    Result<std::vector<Snapshot>> snapshots() override {
        auto pricing = prices();
        if (!pricing) return pricing.error();
        auto images = list(std::string("/images?per_page=50&type=snapshot&label_selector=") + label, "images");
        if (!images) return images.error();
        return understood("Hetzner", [&]() -> Result<std::vector<Snapshot>> {
            std::vector<Snapshot> all;
            for (const auto& image : *images) {
                Snapshot snapshot{.id = id_of(image),
                                  .name = image.at("description"),
                                  .created = http::utc_in(image.at("created")),
                                  .ready = image.at("status") == "available",
                                  .currency = pricing->body.value("currency", "")};
                if (image.at("image_size").is_number()) {
                    const double gb = http::amount_in(image["image_size"]);
                    snapshot.size_gib = gb * gib_per_gb;
                    if (pricing->body.contains("snapshot_gb_month"))
                        snapshot.per_month = gb * pricing->body["snapshot_gb_month"].get<double>();
                }
                all.push_back(snapshot);
            }
            return all;
        });
    }

    Result<> delete_snapshot(const std::string& id) override { return api_.remove("/images/" + http::escaped(id)); }

    Result<> open_ports(const std::string& id, const std::vector<int>& ports) override {
        return understood("Hetzner", [&]() -> Result<> {
            auto machine = this->machine(id);
            if (!machine) return machine.error();
            auto firewall = ensure_firewall(machine->name);
            if (!firewall) return firewall.error();
            std::vector<int> open = {22};
            open.insert(open.end(), ports.begin(), ports.end());
            auto set = api_.post("/firewalls/" + std::to_string(*firewall) + "/actions/set_rules",
                                 {{"rules", firewall_rules(open)}}, true);
            if (!set) return set.error();
            for (const auto& action : set->at("actions"))
                if (auto done = wait(action); !done) return done;
            return Ok{};
        });
    }

private:
    Result<std::vector<Json>> list(const std::string& path, const std::string& what) {
        return api_.all(path, what, [&](const Json& page) { return next_page(path, page); });
    }

    // With the price list in trouble all prices are unknown; machines are shown, and deleted, all the same.
    Result<http::JsonApi::Dated> prices() {
        if (rates_) return *rates_;
        auto asked = api_.daily("hetzner-rates", [&]() -> Result<Json> {
            auto told = api_.get("/pricing");
            if (!told) return told;
            return understood("Hetzner", [&]() -> Result<Json> { return rates_in(told->at("pricing")); });
        });
        if (!asked && asked.error().kind == Error::Kind::internal) return asked;  // the user pressed Ctrl-C
        rates_ = asked ? *asked : http::JsonApi::Dated{{{"source", "unknown: " + asked.error().what}}, world_.now()};
        return *rates_;
    }

    // Whatever a reply says it is.
    static int whole(double value) { return static_cast<int>(std::clamp(value, 0.0, 1e9)); }

    static void add_offers(const Json& type, const http::JsonApi::Dated& pricing, std::vector<Offer>& offers) {
        if (type.at("architecture") != "x86") return;
        for (const auto& place : type.at("locations")) {
            if (!place.at("deprecation").is_null()) continue;
            const std::string location = place.at("name");
            offers.push_back({.name = type.at("name"),
                              .region = location,
                              .cpus = type.at("cores"),
                              .memory_mib = whole(type.at("memory").get<double>() * 1024),
                              .disk_gib = whole(type.at("disk").get<double>()),
                              .available = place.value("available", true),  // not in the published description
                              .price = price_of(type, location, pricing)});
        }
    }

    Result<Machine> describe(const Json& server) {
        auto pricing = prices();
        if (!pricing) return pricing.error();
        Machine machine{.id = id_of(server),
                        .name = server.at("name"),
                        .state = state_of(server.at("status")),
                        .region = server.at("location").at("name"),
                        .offer = server.at("server_type").at("name")};
        machine.price = price_of(server.at("server_type"), machine.region, *pricing);
        if (const Json& ipv4 = server.at("public_net").at("ipv4"); ipv4.is_object()) machine.address = ipv4.at("ip");
        return machine;
    }

    Result<Machine> order_server(const Order& order, const Offer& offer, int64_t key, int64_t firewall,
                                 const std::vector<Offer>& all) {
        Json body = {{"name", order.name},
                     {"server_type", offer.name},
                     {"location", offer.region},
                     {"image", order.image.empty() ? default_image : order.image},
                     {"user_data", order.user_data},
                     {"labels", {{label, order.name}}},
                     {"firewalls", Json::array({{{"firewall", firewall}}})}};
        if (key) body["ssh_keys"] = Json::array({std::to_string(key)});
        auto reply = api_.call("POST", "/servers", body);
        if (!reply) return reply.error();
        if (reply->ok()) return describe(reply->body.at("server"));
        const std::string code = api_.refusal(*reply).code;
        Error refused = api_.refused(*reply);
        if (code == "uniqueness_error") return name_taken(order.name);
        if (is_sold_out(code)) {
            refused.what = "'" + offer.name + "' is sold out in " + offer.region + " (" + refused.what + ")";
            refused.hint = nearest_offer(all, offer);
        }
        if (code == "resource_limit_exceeded") {
            refused.kind = Error::Kind::remote;  // a 403, but signing in again changes nothing
            refused.hint = "your project's limits are at https://console.hetzner.cloud under Limits";
        }
        return refused;
    }

    // The id of the account's key with that text; 0: none was wanted.
    Result<int64_t> ensure_key(const std::string& machine, const std::string& line) {
        if (line.empty()) return 0;
        auto keys = list("/ssh_keys?per_page=50", "ssh_keys");
        if (!keys) return keys.error();
        for (const auto& key : *keys) {
            if (key_itself(key.at("public_key")) == key_itself(line)) return key.at("id").get<int64_t>();
            // Left by an earlier machine of that name: of another computer, whose key it was.
            if (key.at("name") == "tnr-" + machine)
                if (auto removed = api_.remove("/ssh_keys/" + id_of(key)); !removed) return removed.error();
        }
        auto made =
            api_.post("/ssh_keys", {{"name", "tnr-" + machine}, {"public_key", line}, {"labels", {{label, machine}}}});
        if (!made) return made.error();
        return made->at("ssh_key").at("id").get<int64_t>();
    }

    Result<int64_t> ensure_firewall(const std::string& machine) {
        const std::string name = "tnr-" + machine;
        auto there = api_.get("/firewalls?name=" + http::escaped(name));
        if (!there) return there.error();
        if (!there->at("firewalls").empty()) return there->at("firewalls")[0].at("id").get<int64_t>();
        auto made =
            api_.post("/firewalls", {{"name", name}, {"labels", {{label, machine}}}, {"rules", firewall_rules({22})}});
        if (!made) return made.error();
        return made->at("firewall").at("id").get<int64_t>();
    }

    // Whether there is a server of this name. One that is being deleted is waited for: its name is free in a moment.
    Result<bool> called(const std::string& name) {
        bool there = false;
        auto known = http::poll(world_, deleting_seconds_max, [&]() -> Result<bool> {
            auto found = api_.get("/servers?name=" + http::escaped(name));
            if (!found) return found.error();
            const Json& servers = found->at("servers");
            there = !servers.empty();
            return !there || servers[0].at("status") != "deleting";
        });
        if (!known) return known.error();
        return there;
    }

    Result<std::string> status(const std::string& id) {
        auto server = api_.get("/servers/" + http::escaped(id));
        if (!server) return server.error();
        return understood(
            "Hetzner", [&]() -> Result<std::string> { return server->at("server").at("status").get<std::string>(); });
    }

    // Asks for something that may be asked for twice; the answer is the action that does it.
    Result<Json> act(const std::string& id, const std::string& what, const Json& body = Json::object()) {
        return understood("Hetzner", [&]() -> Result<Json> {
            const std::string path = "/servers/" + http::escaped(id) + "/actions/" + what;
            Result<http::Reply> reply = http::Reply{};
            auto taken = http::poll(world_, locked_seconds_max, [&]() -> Result<bool> {
                reply = api_.call("POST", path, body, what != "create_image");
                if (!reply) return reply.error();
                const std::string code = api_.refusal(*reply).code;
                return code != "locked" && code != "conflict";
            });
            if (!taken) return taken.error();
            if (!reply->ok()) return api_.refused(*reply);
            return reply->body.at("action");
        });
    }

    Result<> act_and_wait(const std::string& id, const std::string& what, const Json& body = Json::object()) {
        auto action = act(id, what, body);
        if (!action) return action.error();
        return understood("Hetzner", [&] { return wait(*action); });
    }

    Result<> wait(Json action) {
        const std::string path = "/actions/" + id_of(action), what = action.value("command", "it");
        auto ended = http::poll(world_, action_seconds_max, [&]() -> Result<bool> {
            if (action.at("status") != "running") return true;
            auto now = api_.get(path);
            if (!now) return now.error();
            action = now->at("action");
            return action.at("status") != "running";
        });
        if (!ended) return ended.error();
        if (action.at("status") == "success") return Ok{};
        const std::string why =
            *ended ? "failed: " + action.at("error").value("message", "") : "is still not done after 10 minutes";
        return Error{Error::Kind::remote, "Hetzner: " + what + " " + why};
    }

    CloudWorld world_;
    http::JsonApi api_;
    std::optional<http::JsonApi::Dated> rates_;  // a list of 200 servers reads them 200 times
};

// The token of the active context in hcloud's configuration.
std::optional<Credentials> standard(const CloudWorld& world) {
    if (std::string token = world.variable("HCLOUD_TOKEN"); !token.empty())
        return Credentials{{{"token", token}}, "HCLOUD_TOKEN"};
    std::string path = world.variable("HCLOUD_CONFIG");
    if (path.empty()) path = world.home + "/.config/hcloud/cli.toml";
    std::string wanted = world.variable("HCLOUD_CONTEXT");
    std::map<std::string, std::string> tokens, context;  // a context's name and token may stand in either order
    for (const auto& [key, value] : settings_in(path, '=')) {
        if (key == "active_context" && wanted.empty()) wanted = value;
        if (key != "name" && key != "token") continue;
        if (context.count(key)) context.clear();  // the next one's
        context[key] = value;
        if (context.size() == 2) tokens[context["name"]] = context["token"];
    }
    if (wanted.empty() || tokens[wanted].empty()) return std::nullopt;
    return Credentials{{{"token", tokens[wanted]}}, path};
}

}  // namespace
}  // namespace tnr::hetzner

namespace tnr {
extern const Cloud hetzner_cloud;
const Cloud hetzner_cloud = {
    .name = "hetzner",
    .secrets = {{"token", "API token"}},
    .where_to_get = "https://console.hetzner.cloud, in your project under Security, API tokens; read and write",
    .sources = "HCLOUD_TOKEN, hcloud's cli.toml",
    .standard = hetzner::standard,
    .make = [](const Credentials& credentials, const CloudWorld& world) -> std::unique_ptr<Provider> {
        return std::make_unique<hetzner::Hetzner>(credentials, world);
    }};
}  // namespace tnr
