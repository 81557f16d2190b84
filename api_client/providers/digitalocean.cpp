// DigitalOcean, https://docs.digitalocean.com/reference/api/. What we make carries the tag `tnr`, and `tnr-machine:NAME` for each
// machine, to which its firewall belongs; the SSH key is called tnr-NAME. Names of droplets are not unique there: create() looks
// first, and an order is never sent twice.
#include <algorithm>
#include <charconv>

#include "api_client/http/json_api.hpp"
#include "api_client/offers.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::digitalocean {
namespace {

using http::Json;
using http::understood;

constexpr const char* cloud_name = "DigitalOcean";
constexpr const char* default_image = "debian-12-x64";
constexpr const char* tag = "tnr";
// Snapshots have no tags when they are made; ours are known by their names.
const std::string snapshot_prefix = "tnr:";
constexpr int action_seconds_max = 900;   // a snapshot of a full disk takes minutes
constexpr int shutdown_seconds_max = 60;  // then the plug is pulled
constexpr double gib_per_gb = 1e9 / (1 << 30);

std::string machine_tag(const std::string& name) {
    return "tnr-machine:" + name;
}

MachineState state_of(const std::string& status) {
    if (status == "active") return MachineState::running;
    if (status == "off") return MachineState::stopped;
    if (status == "archive") return MachineState::gone;
    return MachineState::starting;
}

// "type base64", without the comment.
std::string key_itself(const std::string& line) {
    const size_t space = line.find(' ');
    return space == std::string::npos ? line : line.substr(0, line.find(' ', space + 1));
}

// Disk and one address are part of a droplet's price, and a droplet costs the same when it is off.
Price price_of(const Json& size, const std::string& date) {
    return {.currency = "USD",
            .machine = http::amount_in(size.at("price_hourly")),
            .disk = 0,
            .address = 0,
            .billed_while_stopped = true,
            .month = http::amount_in(size.at("price_monthly")),
            .source = "DigitalOcean's /v2/sizes",
            .date = date};
}

// Everything may go out; what is not named may not come in.
Json firewall(const std::string& machine, const std::vector<int>& ports) {
    const Json everywhere = {{"addresses", {"0.0.0.0/0", "::/0"}}};
    Json in = Json::array({{{"protocol", "icmp"}, {"ports", "0"}, {"sources", everywhere}}}), out = Json::array();
    for (int port : ports)
        in.push_back({{"protocol", "tcp"}, {"ports", std::to_string(port)}, {"sources", everywhere}});
    for (const char* protocol : {"tcp", "udp", "icmp"})
        out.push_back({{"protocol", protocol},
                       {"ports", std::string(protocol) == "icmp" ? "0" : "all"},
                       {"destinations", everywhere}});
    return {
        {"name", "tnr-" + machine}, {"tags", {machine_tag(machine)}}, {"inbound_rules", in}, {"outbound_rules", out}};
}

// Snapshots are numbers, images of DigitalOcean's own are words.
std::optional<int64_t> snapshot_id(const std::string& image) {
    int64_t id = 0;
    const char* end = image.data() + image.size();
    auto [after, problem] = std::from_chars(image.data(), end, id);
    if (problem != std::errc{} || after != end) return std::nullopt;
    return id;
}

http::Refusal refusal_in(const Json& body) {
    if (!body.is_object()) return {};
    return {body.value("id", ""), body.value("message", "")};
}

class DigitalOcean : public Provider {
public:
    DigitalOcean(const Credentials& credentials, const CloudWorld& world)
        : world_(world),
          api_({.cloud = cloud_name,
                .base = world.variable("DIGITALOCEAN_API_URL").empty() ? "https://api.digitalocean.com"
                                                                       : world.variable("DIGITALOCEAN_API_URL"),
                .token = credentials.values.at("token"),
                .sign_in = "the token came from " + credentials.source + "; `tnr login digitalocean` takes a new one",
                .refusal = refusal_in},
               world) {}

    std::string name() const override { return "digitalocean"; }

    Result<std::string> whoami() override {
        auto account = api_.get("/v2/account");
        if (!account) return account.error();
        return understood(cloud_name, [&]() -> Result<std::string> {
            const Json& about = account->at("account");
            const std::string email = about.at("email");
            return about.contains("team") ? email + ", team " + about["team"].value("name", "") : email;
        });
    }

    Result<std::vector<Offer>> offers() override {
        auto sizes = list("/v2/sizes", "sizes");
        if (!sizes) return sizes.error();
        return understood(cloud_name, [&]() -> Result<std::vector<Offer>> {
            std::vector<Offer> offers;
            for (const auto& size : *sizes)
                for (const auto& region : size.at("regions")) {
                    Offer offer{.name = size.at("slug"),
                                .region = region,
                                .cpus = size.at("vcpus"),
                                .memory_mib = size.at("memory"),
                                .disk_gib = static_cast<int>(size.at("disk").get<int>() * gib_per_gb),
                                .available = size.at("available"),
                                .price = price_of(size, world_.now())};
                    if (size.contains("gpu_info")) {
                        offer.gpu = size["gpu_info"].value("model", "unknown");
                        offer.gpu_count = size["gpu_info"].value("count", 1);
                    }
                    offers.push_back(offer);
                }
            default_first(offers);
            return offers;
        });
    }

    Result<Machine> create(const Order& order) override {
        return understood(cloud_name, [&]() -> Result<Machine> {
            auto there = list("/v2/droplets?tag_name=" + http::escaped(machine_tag(order.name)), "droplets");
            if (!there) return there.error();
            for (const auto& droplet : *there)  // lists show deleted ones for a while
                if (machine(droplet.at("id").dump())) return name_taken(order.name);
            auto all = offers();
            if (!all) return all.error();
            auto offer = choose_offer(*all, order);
            if (!offer) return offer.error();
            auto key = ensure_key(order.name, order.authorised_key);
            if (!key) return key.error();
            if (auto wall = ensure_firewall(order.name, {22}); !wall) return wall.error();
            auto made = order_droplet(order, *offer, *key, *all);
            // A refusal is certain; a broken connection is not, and its droplet would want its firewall.
            if (!made && made.error().kind != Error::Kind::network) (void)remove_leftovers(order.name);
            return made;
        });
    }

    Result<Machine> machine(const std::string& id) override {
        auto droplet = api_.get("/v2/droplets/" + http::escaped(id));
        if (!droplet) return droplet.error();
        return understood(cloud_name, [&] { return describe(droplet->at("droplet")); });
    }

    Result<std::vector<Machine>> machines() override {
        auto droplets = list(std::string("/v2/droplets?tag_name=") + tag, "droplets");
        if (!droplets) return droplets.error();
        return understood(cloud_name, [&]() -> Result<std::vector<Machine>> {
            std::vector<Machine> machines;
            for (const auto& droplet : *droplets) machines.push_back(*describe(droplet));
            return machines;
        });
    }

    Result<> stop(const std::string& id) override {
        auto now = machine(id);
        if (!now) return now.error();
        if (now->state == MachineState::stopped) return Ok{};
        if (auto asked = act(id, {{"type", "shutdown"}}); !asked) return asked.error();
        auto off = http::poll(world_, shutdown_seconds_max, [&]() -> Result<bool> {
            auto machine = this->machine(id);
            if (!machine) return machine.error();
            return machine->state == MachineState::stopped;
        });
        if (!off) return off.error();
        return *off ? Result<>{Ok{}} : act_and_wait(id, {{"type", "power_off"}});
    }

    Result<> start(const std::string& id) override {
        auto now = machine(id);
        if (!now) return now.error();
        return now->state == MachineState::stopped ? act_and_wait(id, {{"type", "power_on"}}) : Result<>{Ok{}};
    }

    Result<> destroy(const std::string& id) override {
        return understood(cloud_name, [&]() -> Result<> {
            auto droplet = api_.get("/v2/droplets/" + http::escaped(id));
            if (!droplet && droplet.error().kind != Error::Kind::not_found) return droplet.error();
            if (auto removed = api_.remove("/v2/droplets/" + http::escaped(id)); !removed) return removed;
            return remove_all(left_of(droplet ? droplet->at("droplet").at("name").get<std::string>() : "", id));
        });
    }

    Result<std::vector<Leftover>> leftovers(const std::string& name) override {
        return understood(cloud_name, [&] { return left_of(name); });
    }
    Result<> remove_leftover(const Leftover& leftover) override { return api_.remove(leftover.id); }

    // Keeps the disk's size: a larger one could never be made smaller again.
    Result<> resize(const std::string& id, const std::string& offer) override {
        return act_and_wait(id, {{"type", "resize"}, {"size", offer}, {"disk", false}});
    }

    Result<> snapshot(const std::string& id, const std::string& name) override {
        auto action = act(id, {{"type", "snapshot"}, {"name", snapshot_prefix + name}});
        return action ? Result<>{Ok{}} : Result<>{action.error()};
    }

    // What a snapshot costs is not in the API, so it is unknown.
    Result<std::vector<Snapshot>> snapshots() override {
        auto found = list("/v2/snapshots?resource_type=droplet", "snapshots");
        if (!found) return found.error();
        return understood(cloud_name, [&]() -> Result<std::vector<Snapshot>> {
            std::vector<Snapshot> ours;
            for (const auto& each : *found) {
                const std::string name = each.at("name");
                if (name.compare(0, snapshot_prefix.size(), snapshot_prefix) != 0) continue;
                ours.push_back({.id = each.at("id"),
                                .name = name.substr(snapshot_prefix.size()),
                                .size_gib = each.at("size_gigabytes").get<double>() * gib_per_gb,
                                .created = http::utc_in(each.at("created_at")),
                                .ready = true,  // the list has finished ones only
                                .currency = "USD"});
            }
            return ours;
        });
    }

    Result<> delete_snapshot(const std::string& id) override {
        return api_.remove("/v2/snapshots/" + http::escaped(id));
    }

    Result<> open_ports(const std::string& id, const std::vector<int>& ports) override {
        return understood(cloud_name, [&]() -> Result<> {
            auto machine = this->machine(id);
            if (!machine) return machine.error();
            std::vector<int> open = {22};
            open.insert(open.end(), ports.begin(), ports.end());
            auto wall = ensure_firewall(machine->name, open);
            if (!wall) return wall.error();
            auto set = api_.put("/v2/firewalls/" + http::escaped(*wall), firewall(machine->name, open));
            return set ? Result<>{Ok{}} : Result<>{set.error()};
        });
    }

    Result<Costs> costs() override {
        auto balance = api_.get("/v2/customers/my/balance");
        if (!balance) return balance.error();
        return understood(cloud_name, [&]() -> Result<Costs> {
            return Costs{.currency = "USD",
                         .this_month = http::balance_in(balance->at("month_to_date_usage")),
                         .balance = http::balance_in(balance->at("account_balance")),
                         .source = "DigitalOcean's /v2/customers/my/balance, the whole account",
                         .date = balance->at("generated_at")};
        });
    }

private:
    // Of the next page's address only its number counts, for the rest is of the cloud's host, not of a proxy. A page that
    // names one that has been is the end (http::Pages).
    Result<std::vector<Json>> list(const std::string& path, const std::string& what) {
        const std::string first = path + (path.find('?') == std::string::npos ? "?" : "&") + "per_page=200";
        return api_.all(first, what, [first](const Json& body) -> std::string {
            const Json pages = body.value("links", Json::object()).value("pages", Json::object());
            if (!pages.contains("next")) return "";
            const std::string next = pages.at("next");
            const size_t at = std::min(next.find("?page="), next.find("&page="));
            if (at == std::string::npos) throw std::out_of_range("the next page has no number");
            return first + "&page=" + std::to_string(std::stoul(next.substr(at + 6)));
        });
    }

    Result<Machine> describe(const Json& droplet) const {
        Machine machine{.id = std::to_string(droplet.at("id").get<int64_t>()),
                        .name = droplet.at("name"),
                        .state = state_of(droplet.at("status")),
                        .region = droplet.at("region").at("slug"),
                        .offer = droplet.at("size_slug"),
                        .price = price_of(droplet.at("size"), world_.now())};
        for (const auto& address : droplet.at("networks").value("v4", Json::array()))
            if (address.at("type") == "public") machine.address = address.at("ip_address");
        return machine;
    }

    Result<Machine> order_droplet(const Order& order, const Offer& offer, int64_t key, const std::vector<Offer>& all) {
        Json body = {{"name", order.name},           {"size", offer.name},
                     {"region", offer.region},       {"image", order.image.empty() ? default_image : order.image},
                     {"user_data", order.user_data}, {"tags", {tag, machine_tag(order.name)}}};
        if (auto snapshot = snapshot_id(order.image)) body["image"] = *snapshot;
        if (key) body["ssh_keys"] = Json::array({key});
        auto reply = api_.call("POST", "/v2/droplets", body);
        if (!reply) return reply.error();
        if (reply->ok()) return describe(reply->body.at("droplet"));
        Error refused = api_.refused(*reply);
        // One code stands for all of these; only the words differ.
        const std::string words = api_.refusal(*reply).words;
        if (words.find("limit") != std::string::npos) {
            refused.kind = Error::Kind::remote;
            refused.hint =
                "your account's limit is at https://cloud.digitalocean.com/account/team, under Droplet limit";
        } else if (words.find("available") != std::string::npos) {
            refused.what = "'" + offer.name + "' is sold out in " + offer.region + " (" + refused.what + ")";
            refused.hint = nearest_offer(all, offer);
        }
        return refused;
    }

    // The id of the account's key with that text; 0: none was wanted.
    Result<int64_t> ensure_key(const std::string& machine, const std::string& line) {
        if (line.empty()) return 0;
        auto keys = list("/v2/account/keys", "ssh_keys");
        if (!keys) return keys.error();
        for (const auto& key : *keys)
            if (key_itself(key.at("public_key")) == key_itself(line)) return key.at("id").get<int64_t>();
        auto made = api_.post("/v2/account/keys", {{"name", "tnr-" + machine}, {"public_key", line}});
        if (!made) return made.error();
        return made->at("ssh_key").at("id").get<int64_t>();
    }

    Result<std::string> ensure_firewall(const std::string& machine, const std::vector<int>& ports) {
        auto walls = list("/v2/firewalls", "firewalls");
        if (!walls) return walls.error();
        for (const auto& wall : *walls)
            if (wall.at("name") == "tnr-" + machine) return wall.at("id").get<std::string>();
        // A firewall can only have tags that exist; making one that does is no mistake.
        auto tagged = api_.post("/v2/tags", {{"name", machine_tag(machine)}}, true);
        if (!tagged) return tagged.error();
        auto made = api_.post("/v2/firewalls", firewall(machine, ports));
        if (!made) return made.error();
        return made->at("firewall").at("id").get<std::string>();
    }

    // Firewall, key and tag of a machine that is no more; "": of all such machines. `deleted`: an id that lists may still
    // have for a while.
    Result<std::vector<Leftover>> left_of(const std::string& machine, const std::string& deleted = "") {
        auto alive = machines();
        if (!alive) return alive.error();
        std::erase_if(*alive, [&](const Machine& each) { return each.id == deleted; });
        struct Kind {
            std::string word, path, list, prefix, id;
        };
        std::vector<Leftover> left;
        for (const Kind& kind : {Kind{"firewall ", "/v2/firewalls", "firewalls", "tnr-", "id"},
                                 Kind{"SSH key ", "/v2/account/keys", "ssh_keys", "tnr-", "id"},
                                 Kind{"tag ", "/v2/tags", "tags", machine_tag(""), "name"}}) {
            auto things = list(kind.path, kind.list);
            if (!things) return things.error();
            for (const auto& thing : *things) {
                const std::string name = thing.at("name");
                if (name.compare(0, kind.prefix.size(), kind.prefix) != 0) continue;
                const std::string owner = name.substr(kind.prefix.size());
                if (has(*alive, owner) || (!machine.empty() && owner != machine)) continue;
                const Json& id = thing.at(kind.id);
                const std::string text = id.is_string() ? id.get<std::string>() : id.dump();
                left.push_back({kind.path + "/" + http::escaped(text), kind.word + name});
            }
        }
        return left;
    }

    Result<Json> act(const std::string& id, const Json& what) {
        const bool repeatable = what.at("type") != "snapshot";
        auto reply = api_.post("/v2/droplets/" + http::escaped(id) + "/actions", what, repeatable);
        if (!reply) return reply.error();
        return understood(cloud_name, [&]() -> Result<Json> { return reply->at("action"); });
    }

    Result<> act_and_wait(const std::string& id, const Json& what) {
        auto action = act(id, what);
        if (!action) return action.error();
        return understood(cloud_name, [&]() -> Result<> {
            const std::string path = "/v2/actions/" + action->at("id").dump();
            auto ended = http::poll(world_, action_seconds_max, [&]() -> Result<bool> {
                auto now = api_.get(path);
                if (!now) return now.error();
                *action = now->at("action");
                return action->at("status") != "in-progress";
            });
            if (!ended) return ended.error();
            if (action->at("status") == "completed") return Ok{};
            return Error{Error::Kind::remote, "DigitalOcean: " + what.at("type").get<std::string>() +
                                                  (*ended ? " failed" : " is still not done after 15 minutes")};
        });
    }

    CloudWorld world_;
    http::JsonApi api_;
};

// doctl's configuration: contexts beside the default one are below `auth-contexts:`.
std::string token_in(const std::string& path, std::string context) {
    std::string default_token;
    const auto settings = settings_in(path, ':');
    for (const auto& [key, value] : settings) {
        if (key == "context" && context.empty()) context = value;
        if (key == "access-token") default_token = value;
    }
    if (!context.empty() && context != "default")
        for (const auto& [key, value] : settings)
            if (key == context && !value.empty()) return value;
    return default_token;
}

std::optional<Credentials> standard(const CloudWorld& world) {
    for (const char* name : {"DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_TOKEN"})
        if (std::string token = world.variable(name); !token.empty()) return Credentials{{{"token", token}}, name};
    const std::string configured = world.variable("XDG_CONFIG_HOME");
    for (const std::string& folder :
         {configured.empty() ? world.home + "/.config" : configured, world.home + "/snap/doctl/current/.config"}) {
        const std::string path = folder + "/doctl/config.yaml";
        if (std::string token = token_in(path, world.variable("DIGITALOCEAN_CONTEXT")); !token.empty())
            return Credentials{{{"token", token}}, path};
    }
    return std::nullopt;
}

}  // namespace
}  // namespace tnr::digitalocean

namespace tnr {
extern const Cloud digitalocean_cloud;
const Cloud digitalocean_cloud = {
    .name = "digitalocean",
    .secrets = {{"token", "API token"}},
    .where_to_get = "https://cloud.digitalocean.com/account/api/tokens; full access",
    .sources = "DIGITALOCEAN_ACCESS_TOKEN, DIGITALOCEAN_TOKEN, doctl's config.yaml",
    .standard = digitalocean::standard,
    .make = [](const Credentials& credentials, const CloudWorld& world) -> std::unique_ptr<Provider> {
        return std::make_unique<digitalocean::DigitalOcean>(credentials, world);
    }};
}  // namespace tnr
