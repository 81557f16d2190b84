// Thunder Compute, https://www.thundercompute.com/docs/api-reference. Its machines come with GPUs of its own. It takes neither a
// name nor tags nor user data, but it shows the SSH keys that a machine was made with: ours end in the comment `tnr:NAME`,
// which is how a machine is known to be ours and which. Those of its own tool are called by their numbers. It cannot stop a machine: one is billed until it is deleted.
#include <algorithm>
#include <cctype>

#include "api_client/base/machine_name.hpp"
#include "api_client/base/text.hpp"
#include "api_client/http/json_api.hpp"
#include "api_client/offers.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::thunder {
namespace {

using http::Json;
using http::understood;

constexpr const char* cloud_name = "Thunder";
constexpr const char* default_template = "base";
constexpr const char* login_user = "ubuntu";
const std::string key_tag = "tnr:";
// What the price of a GPU has in it, from Thunder's price page; the API tells the price of what goes beyond.
constexpr int disk_gb_included_per_gpu = 100;

constexpr std::string_view cpus_word = "cpus";

// Thunder's word for a size, "h100_x1_production": GPU, how many, mode. Where it lets one choose more CPUs than the price has in
// it, their number is our word behind it: "h100_x1_prototyping_8cpus".
struct SizeName {
    std::string gpu, mode;
    int count = 1;
};

std::string without_cpus(const std::string& size) {
    return size.ends_with(cpus_word) ? size.substr(0, size.rfind('_')) : size;
}

std::optional<SizeName> parse_size(const std::string& name) {
    const size_t x = name.find("_x"), end = x == std::string::npos ? x : name.find('_', x + 2);
    if (end == std::string::npos || end == x + 2) return std::nullopt;
    const std::string count = name.substr(x + 2, end - x - 2);
    if (count.size() > 2 || !std::all_of(count.begin(), count.end(), [](unsigned char c) { return std::isdigit(c); }))
        return std::nullopt;
    return SizeName{name.substr(0, x), without_cpus(name.substr(end + 1)), std::stoi(count)};
}

std::string with_cpus(const std::string& size, int cpus, int included) {
    return cpus > included ? size + "_" + std::to_string(cpus) + std::string(cpus_word) : size;
}

// What of the specifications and prices is kept for a day.
Json sizes_in(const Json& specs) {
    Json sizes = Json::object();
    for (const auto& [size, spec] : specs.items()) {
        auto cpus = spec.at("vcpuOptions").get<std::vector<int>>();
        if (cpus.empty()) continue;
        std::sort(cpus.begin(), cpus.end());
        sizes[size] = {{"cpus", cpus.front()},  // those that its price has in it
                       {"more_cpus", std::vector<int>(cpus.begin() + 1, cpus.end())},
                       {"gib_per_cpu", spec.at("ramPerVCPUGiB").get<int>()},
                       {"disk_gib", spec.at("storageGB").at("min").get<int>()}};
    }
    return sizes;
}

Json amounts_in(const Json& pricing) {
    Json amounts = Json::object();
    for (const auto& [what, price] : pricing.items()) amounts[what] = http::amount_in(price);
    return amounts;
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

// Numbers are partly texts there, "8" or 8.
int whole(const Json& object, const char* name) {
    const Json value = object.value(name, Json(0));
    return value.is_string() ? std::stoi(value.get<std::string>()) : value.get<int>();
}

MachineState state_of(const std::string& status) {
    if (status == "RUNNING") return MachineState::running;
    if (status == "STOPPED") return MachineState::stopped;
    if (status == "STOPPING") return MachineState::stopping;
    if (status == "DELETING" || status == "DELETED") return MachineState::gone;
    return MachineState::starting;
}

// The name that we gave it, out of the comment of the key it was made with; empty: it is none of ours.
std::string name_of(const Json& instance) {
    for (const auto& key : instance.value("sshPublicKeys", Json::array())) {
        const std::string line = key;
        const size_t comment = line.rfind(' ');
        if (comment != std::string::npos && line.compare(comment + 1, key_tag.size(), key_tag) == 0)
            return line.substr(comment + 1 + key_tag.size());
    }
    return "";
}

std::string tagged_key(const std::string& line, const std::string& name) {
    const size_t type_end = line.find(' ');
    if (type_end == std::string::npos) return line;
    return line.substr(0, line.find(' ', type_end + 1)) + " " + key_tag + name;
}

class Thunder : public Provider {
public:
    Thunder(const Credentials& credentials, const CloudWorld& world)
        : api_({.cloud = cloud_name,
                .base = world.variable("TNR_API_URL").empty() ? "https://api.thundercompute.com:8443/v1"
                                                              : world.variable("TNR_API_URL"),
                .token = credentials.values.at("token"),
                .sign_in = "the token came from " + credentials.source + "; `tnr login thunder` takes a new one",
                .refusal = [](const Json& body) -> http::Refusal {
                    if (!body.is_object()) return {};
                    return {body.value("error", ""), body.value("message", "")};
                }},
               world) {}

    std::string name() const override { return "thunder"; }
    bool brings_gpus() const override { return true; }
    bool resizes_running() const override { return true; }

    Result<std::string> whoami() override {
        auto instances = api_.get("/instances/list");
        if (!instances) return instances.error();
        return "an account with " + counted(instances->size(), "instance");
    }

    Result<std::vector<Offer>> offers() override {
        auto terms = this->terms();
        if (!terms) return terms.error();
        return understood(cloud_name, [&]() -> Result<std::vector<Offer>> {
            std::vector<Offer> offers;
            for (const auto& [size, spec] : terms->body.at("specs").items()) {
                const auto parsed = parse_size(size);
                if (!parsed) continue;
                auto choices = spec.value("more_cpus", std::vector<int>{});
                const int included = spec.at("cpus");
                choices.insert(choices.begin(), included);
                for (const int cpus : choices) {
                    Offer offer{.name = with_cpus(size, cpus, included),
                                .cpus = cpus,
                                .memory_mib = cpus * spec.at("gib_per_cpu").get<int>() * 1024,
                                .disk_gib = spec.at("disk_gib"),
                                .gpu = parsed->gpu,
                                .gpu_count = parsed->count};
                    offer.price = price_of(size, cpus, offer.disk_gib, *terms);
                    offers.push_back(offer);
                }
            }
            default_first(offers);
            return offers;
        });
    }

    Result<Machine> create(const Order& order) override {
        return understood(cloud_name, [&]() -> Result<Machine> {
            if (auto free = name_is_free(order.name); !free) return free.error();
            auto all = offers();
            if (!all) return all.error();
            auto offer = choose_offer(*all, order);
            if (!offer) return offer.error();
            return order_instance(order, *offer, *all);
        });
    }

    Result<Machine> machine(const std::string& id) override {
        return understood(cloud_name, [&]() -> Result<Machine> {
            auto found = find(id);
            if (!found) return found.error();
            return describe(found->first, found->second);
        });
    }

    Result<std::vector<Machine>> machines() override {
        auto instances = api_.get("/instances/list");
        if (!instances) return instances.error();
        return understood(cloud_name, [&]() -> Result<std::vector<Machine>> {
            std::vector<Machine> machines;
            for (const auto& [key, instance] : instances->items()) {
                auto machine = describe(key, instance);
                if (!machine) return machine.error();
                machines.push_back(*machine);
            }
            return machines;
        });
    }

    Result<> stop(const std::string& id) override {
        auto now = machine(id);
        if (!now) return now.error();
        if (now->state == MachineState::stopped) return Ok{};
        return Error{Error::Kind::usage, "Thunder cannot stop a machine; it costs until it is deleted",
                     "keep its disk as a snapshot, delete it, and make it anew from the snapshot"};
    }

    Result<> start(const std::string& id) override {
        auto now = machine(id);
        if (!now) return now.error();
        if (now->state != MachineState::stopped && now->state != MachineState::stopping) return Ok{};
        return Error{Error::Kind::usage, "Thunder has stopped this machine, and its API cannot start one",
                     "see https://console.thundercompute.com"};
    }

    Result<> destroy(const std::string& id) override {
        return understood(cloud_name, [&]() -> Result<> {
            auto found = find(id);
            if (!found) return found.error().kind == Error::Kind::not_found ? Result<>{Ok{}} : found.error();
            auto reply =
                api_.call("POST", "/instances/" + http::escaped(found->first) + "/delete", Json::object(), true);
            if (!reply) return reply.error();
            if (reply->ok() || reply->status == 404) return Ok{};
            return api_.refused(*reply);
        });
    }

    // Also of a running machine; to another GPU, too.
    Result<> resize(const std::string& id, const std::string& offer) override {
        return understood(cloud_name, [&]() -> Result<> {
            auto all = offers();
            if (!all) return all.error();
            auto wanted = choose_offer(*all, {.offer = offer});
            if (!wanted) return wanted.error();
            const auto size = parse_size(wanted->name);
            return modify(id, {{"gpu_type", size->gpu},
                               {"num_gpus", size->count},
                               {"mode", size->mode},
                               {"cpu_cores", wanted->cpus}});
        });
    }

    Result<> snapshot(const std::string& id, const std::string& name) override {
        return understood(cloud_name, [&]() -> Result<> {
            auto found = find(id);
            if (!found) return found.error();
            auto made = api_.post("/snapshots/create", {{"instanceId", found->first}, {"name", name}});
            return made ? Result<>{Ok{}} : Result<>{made.error()};
        });
    }

    // All of the account: Thunder's snapshots carry nothing that would tell ours from others.
    Result<std::vector<Snapshot>> snapshots() override {
        auto found = api_.get("/snapshots/list");
        if (!found) return found.error();
        return understood(cloud_name, [&]() -> Result<std::vector<Snapshot>> {
            std::vector<Snapshot> all;
            for (const auto& each : *found)
                all.push_back({.id = each.at("id"),
                               .name = each.at("name"),
                               .size_gib = each.at("minimumDiskSizeGb").get<double>(),
                               .created = http::utc_in(each.at("createdAt")),
                               .ready = lower(each.at("status")) == "ready",
                               .currency = "USD"});
            return all;
        });
    }

    Result<> delete_snapshot(const std::string& id) override { return api_.remove("/snapshots/" + http::escaped(id)); }

    // Only SSH is open by itself; other ports are forwarded over HTTPS by Thunder.
    Result<> open_ports(const std::string& id, const std::vector<int>& ports) override {
        return understood(cloud_name, [&]() -> Result<> {
            auto found = find(id);
            if (!found) return found.error();
            Json add = Json::array(), remove = Json::array();
            const Json open = found->second.value("httpPorts", Json::array());
            for (int port : ports)
                if (std::find(open.begin(), open.end(), port) == open.end()) add.push_back(port);
            for (const auto& port : open)
                if (std::find(ports.begin(), ports.end(), port.get<int>()) == ports.end()) remove.push_back(port);
            if (add.empty() && remove.empty()) return Ok{};
            return modify(id, {{"add_ports", add}, {"remove_ports", remove}});
        });
    }

    // Doing it twice adds a line twice, which does no harm.
    Result<> let_in(const Machine& machine, const std::string& public_line) override {
        return understood(cloud_name, [&]() -> Result<> {
            auto found = find(machine.id);
            if (!found) return found.error();
            auto done = api_.post("/instances/" + http::escaped(found->first) + "/add_key",
                                  {{"public_key", tagged_key(public_line, machine.name)}}, true);
            if (!done) return done.error();
            if (done->at("success").get<bool>()) return Ok{};
            return Error{Error::Kind::remote, "Thunder did not take the key: " + done->value("message", "")};
        });
    }

private:
    // Specifications and prices together, once a day.
    Result<http::JsonApi::Dated> terms() {
        if (terms_) return *terms_;
        auto asked = api_.daily("thunder-terms", [&]() -> Result<Json> {
            auto specs = api_.get("/specs");
            if (!specs) return specs.error();
            auto pricing = api_.get("/pricing");
            if (!pricing) return pricing.error();
            return understood(cloud_name, [&]() -> Result<Json> {
                return Json{{"specs", sizes_in(specs->at("specs"))}, {"pricing", amounts_in(pricing->at("pricing"))}};
            });
        });
        if (asked) terms_ = *asked;
        return asked;
    }

    static Price price_of(const std::string& size, int cpus, int disk_gb, const http::JsonApi::Dated& terms) {
        const Json &pricing = terms.body.at("pricing"), &specs = terms.body.at("specs");
        Price price{.currency = "USD",
                    .address = 0,
                    .billed_while_stopped = true,
                    .source = "Thunder's /pricing",
                    .date = terms.date};
        const auto parsed = parse_size(size);
        if (!parsed || !specs.contains(size)) return price;
        const int more_cpus = std::max(0, cpus - specs[size].at("cpus").get<int>());
        const int more_gb = std::max(0, disk_gb - disk_gb_included_per_gpu * parsed->count);
        if (pricing.contains(size) && (more_cpus == 0 || pricing.contains("additional_vcpus")))
            price.machine = pricing[size].get<double>() + more_cpus * pricing.value("additional_vcpus", 0.0);
        if (more_gb == 0 || pricing.contains("disk_gb")) price.disk = more_gb * pricing.value("disk_gb", 0.0);
        return price;
    }

    Result<Machine> describe(const std::string& number, const Json& instance) {
        const std::string name = name_of(instance);
        Machine machine{.id = instance.at("uuid"),
                        .name = name.empty() ? name_of_number(this->name(), number) : name,
                        .state = state_of(instance.at("status")),
                        .address = instance.value("ip", ""),
                        .user = login_user};
        if (int port = whole(instance, "port"); port > 0) machine.ssh_port = port;
        machine.foreign = name.empty();
        machine.gpu = lower(instance.at("gpuType"));
        machine.gpu_count = whole(instance, "numGpus");
        const std::string size =
            machine.gpu + "_x" + std::to_string(machine.gpu_count) + "_" + instance.at("mode").get<std::string>();
        const int cpus = whole(instance, "cpuCores");
        auto terms = this->terms();
        if (!terms && terms.error().kind == Error::Kind::internal) return terms.error();  // the user pressed Ctrl-C
        const bool known = terms && terms->body.at("specs").contains(size);
        machine.offer = with_cpus(size, cpus, known ? terms->body.at("specs")[size].at("cpus").get<int>() : cpus);
        // With the list in trouble the price is unknown; the machine is shown, and deleted, all the same.
        machine.price =
            terms ? price_of(size, cpus, whole(instance, "storage"), *terms)
                  : Price{.currency = "USD", .billed_while_stopped = true, .source = "unknown: " + terms.error().what};
        return machine;
    }

    // By uuid, which outlives the number that Thunder's paths want; both.
    Result<std::pair<std::string, Json>> find(const std::string& uuid) {
        auto instances = api_.get("/instances/list");
        if (!instances) return instances.error();
        for (const auto& [key, instance] : instances->items())
            if (instance.at("uuid") == uuid) return std::pair<std::string, Json>{key, instance};
        return Error{Error::Kind::not_found, "Thunder has no instance " + uuid};
    }

    Result<Machine> order_instance(const Order& order, const Offer& offer, std::vector<Offer> all) {
        const auto size = parse_size(offer.name);
        auto reply = api_.call("POST", "/instances/create",
                               {{"cpu_cores", offer.cpus},
                                {"disk_size_gb", offer.disk_gib},
                                {"gpu_type", size->gpu},
                                {"num_gpus", size->count},
                                {"mode", size->mode},
                                {"template", order.image.empty() ? default_template : order.image},
                                {"public_key", tagged_key(order.authorised_key, order.name)}});
        if (!reply) return reply.error();
        if (reply->ok())
            return Machine{.id = reply->body.at("uuid"),
                           .name = order.name,
                           .user = login_user,
                           .offer = offer.name,
                           .price = offer.price,
                           .gpu = offer.gpu,
                           .gpu_count = offer.gpu_count};
        Error refused = api_.refused(*reply);
        const auto [code, words] = api_.refusal(*reply);
        if (lower(code + words).find("capacity") != std::string::npos ||
            lower(words).find("available") != std::string::npos) {
            refused.what = "'" + offer.name + "' is sold out (" + refused.what + ")";
            // There is rarely one with more of the same GPU; any other GPU will do as a hint.
            // With more CPUs the same is sold out, too.
            std::erase_if(all,
                          [&](const Offer& other) { return without_cpus(other.name) == without_cpus(offer.name); });
            refused.hint = nearest_offer(all, offer);
            for (const Offer& other : all)
                if (refused.hint.empty() && other.gpu != offer.gpu && other.gpu_count == offer.gpu_count)
                    refused.hint = "nearest: " + other.name;
        }
        return refused;
    }

    // Asking twice for the same is the same as asking once.
    Result<> modify(const std::string& id, const Json& changes) {
        auto found = find(id);
        if (!found) return found.error();
        auto done = api_.post("/instances/" + http::escaped(found->first) + "/modify", changes, true);
        return done ? Result<>{Ok{}} : Result<>{done.error()};
    }

    http::JsonApi api_;
    std::optional<http::JsonApi::Dated> terms_;
};

// The files of the original tnr: ~/.thunder/token, and ~/.thunder/cli_config.json of newer ones.
std::optional<Credentials> standard(const CloudWorld& world) {
    if (std::string token = world.variable("TNR_API_TOKEN"); !token.empty())
        return Credentials{{{"token", token}}, "TNR_API_TOKEN"};
    const std::string folder = world.home + "/.thunder/";
    const Json config = Json::parse(small_file(folder + "cli_config.json"), nullptr, false);
    if (config.is_object() && config.contains("token") && config["token"].is_string())
        return Credentials{{{"token", config["token"]}}, folder + "cli_config.json"};
    std::string token = small_file(folder + "token");
    while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back()))) token.pop_back();
    if (token.empty()) return std::nullopt;
    return Credentials{{{"token", token}}, folder + "token"};
}

}  // namespace
}  // namespace tnr::thunder

namespace tnr {
extern const Cloud thunder_cloud;
const Cloud thunder_cloud = {
    .name = "thunder",
    .secrets = {{"token", "API token"}},
    .where_to_get = "https://console.thundercompute.com, under Settings, Tokens",
    .sources = "TNR_API_TOKEN, the original tnr's ~/.thunder",
    .standard = thunder::standard,
    .make = [](const Credentials& credentials, const CloudWorld& world) -> std::unique_ptr<Provider> {
        return std::make_unique<thunder::Thunder>(credentials, world);
    }};
}  // namespace tnr
