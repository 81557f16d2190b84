// Amazon EC2. Everything that we make carries the tag `tnr` with the machine's name: the instance, its volume, a security group
// of its own, and images. EC2 knows nothing outside of a region, so our ids name it: "eu-central-1/i-0123".
#include <algorithm>
#include <functional>

#include "api_client/http/json_api.hpp"
#include "api_client/offers.hpp"
#include "api_client/provider.hpp"
#include "api_client/providers/aws/images.hpp"
#include "api_client/providers/aws/instances.hpp"
#include "api_client/providers/aws/network.hpp"
#include "api_client/providers/aws/prices.hpp"
#include "api_client/providers/aws/profiles.hpp"
#include "api_client/providers/aws/regions.hpp"
#include "api_client/providers/aws/types.hpp"

namespace tnr::aws {
namespace {

using http::Json;
using http::understood;

constexpr int disk_gib_min = 40;  // PyTorch with its CUDA libraries takes 10, the system 3
constexpr int new_thing_seconds_max = 60, unknown_thing_seconds_max = 10;
constexpr int group_seconds_max = 120;  // a network interface outlives its machine by seconds

bool is_sold_out(const Refusal& refusal) {
    return refusal.code == "InsufficientInstanceCapacity" || refusal.code == "InsufficientHostCapacity" ||
           (refusal.code == "Unsupported" && refusal.words.find("Availability Zone") != std::string::npos);
}

// "2026-01-02T…": from its month's first day to the first of the next.
std::pair<std::string, std::string> month_of(const std::string& now) {
    const int year = std::stoi(now.substr(0, 4)), month = std::stoi(now.substr(5, 2));
    auto first = [](int of_year, int of_month) {
        return std::to_string(of_year) + (of_month < 10 ? "-0" : "-") + std::to_string(of_month) + "-01";
    };
    return {first(year, month), month == 12 ? first(year + 1, 1) : first(year, month + 1)};
}

class Aws : public Provider {
public:
    Aws(const Credentials& credentials, const CloudWorld& world)
        : world_(world), api_(credentials, world), prices_(api_, world), subnet_(world.variable("TNR_AWS_SUBNET")) {}

    std::string name() const override { return "aws"; }

    Result<std::string> whoami() override {
        auto region = api_.home();
        if (!region) return region.error();
        auto who = api_.get({.service = "sts", .region = *region, .action = "GetCallerIdentity"});
        if (!who) return who.error();
        return understood("AWS", [&]() -> Result<std::string> {
            const auto result = who->root().child("GetCallerIdentityResult");
            return required(result, "Arn") + " in account " + required(result, "Account") + ", region " + *region;
        });
    }

    Result<std::vector<Offer>> offers() override { return offers_in(""); }

    // Of one region, the configured one unless told: asking all of them takes a minute.
    Result<std::vector<Offer>> offers_in(const std::string& wanted) override {
        return understood("AWS", [&]() -> Result<std::vector<Offer>> {
            auto region = known_region(wanted);
            if (!region) return region.error();
            auto types = machine_types(api_, world_, *region);
            if (!types) return types.error();
            auto in_zone =
                subnet_.empty() ? Result<std::set<std::string>>{std::set<std::string>{}} : in_subnets_zone(*region);
            if (!in_zone) return in_zone.error();
            const Tariff& tariff = prices_.all_in(*region);
            std::vector<Offer> offers;
            for (const auto& type : *types)
                offers.push_back({.name = type.name,
                                  .region = *region,
                                  .cpus = type.cpus,
                                  .memory_mib = type.memory_mib,
                                  .disk_gib = disk_gib_min,
                                  .available = subnet_.empty() || in_zone->count(type.name) != 0,
                                  .price = tariff.price(type.name, disk_gib_min)});
            default_first(offers);
            return offers;
        });
    }

    Result<> check(const Order& order) override {
        return understood("AWS", [&]() -> Result<> {
            auto region = region_for(order);
            if (!region) return region.error();
            auto offers = offers_in(*region);
            if (!offers) return offers.error();
            auto offer = choose(*offers, order, *region);
            if (!offer && offer.error().kind == Error::Kind::usage) return offer.error();
            auto image = find_image(api_, *region, Id::of(order.image).id);
            return image ? Result<>{Ok{}} : Result<>{image.error()};
        });
    }

    Result<Machine> create(const Order& order) override {
        return understood("AWS", [&]() -> Result<Machine> {
            if (auto free = name_is_free(order.name); !free) return free.error();
            auto region = region_for(order);
            if (!region) return region.error();
            auto all = offers_in(*region);
            if (!all) return all.error();
            auto offer = choose(*all, order, *region);
            if (!offer) return offer.error();
            auto image = find_image(api_, *region, Id::of(order.image).id);
            if (!image) return image.error();
            auto place = find_place(api_, *region, subnet_);
            if (!place) return place.error();
            auto group = make_group(api_, world_, *region, *place, order.name);
            if (!group) return group.error();
            if (group->empty()) return group_taken(order.name);
            return run(order, *offer, *image, *place, *group, *all);
        });
    }

    Result<Machine> machine(const std::string& text) override {
        return understood("AWS", [&]() -> Result<Machine> {
            auto id = known(text);
            if (!id) return id.error();
            auto found = instances(api_, id->region, {{"InstanceId.1", id->id}});
            if (!found) return found.error();
            if (found->empty() || found->front().ended)
                return Error{Error::Kind::not_found, "there is no machine '" + text + "' at AWS"};
            return priced(found->front());
        });
    }

    // In all regions that the account has enabled.
    Result<std::vector<Machine>> machines() override {
        auto found = in_all_regions<Instance>(api_, world_, [](Api& api, const std::string& region) {
            return instances(api, region, {{"Filter.1.Name", "tag-key"}, {"Filter.1.Value.1", tag_name}});
        });
        if (!found) return found.error();
        std::vector<Machine> machines;
        for (const auto& each : *found)
            if (!each.ended) machines.push_back(priced(each));
        return machines;
    }

    // One that still boots cannot be stopped, and one that stops cannot be started.
    Result<> stop(const std::string& text) override {
        return bring(text, {"StopInstances", {"running"}, {"pending"}, {"stopped"}});
    }
    Result<> start(const std::string& text) override {
        return bring(text, {"StartInstances", {"stopped"}, {"stopping"}, {"running", "pending"}});
    }

    Result<> destroy(const std::string& text) override {
        return understood("AWS", [&]() -> Result<> {
            auto id = known(text);
            if (!id) return id.error();
            // What EC2 does not know may be so new that not all its parts do, and would go on costing.
            auto known_there = http::poll(world_, unknown_thing_seconds_max, [&]() -> Result<bool> {
                auto ended = act(api_, *id, "TerminateInstances");
                if (!ended && ended.error().kind != Error::Kind::not_found) return ended.error();
                return bool(ended);
            });
            if (!known_there) return known_there.error();
            if (!*known_there) return remove_all(left_in(api_, id->region, ""));
            if (auto gone = wait_for(api_, world_, *id, {"terminated"}); !gone) return gone;
            auto found = instances(api_, id->region, {{"InstanceId.1", id->id}});
            if (!found) return found.error();
            return remove_all(left_in(api_, id->region, found->empty() ? "" : found->front().machine.name));
        });
    }

    // Of whatever region the order was for.
    Result<std::vector<Leftover>> leftovers(const std::string& machine) override {
        return in_all_regions<Leftover>(
            api_, world_, [&](Api& api, const std::string& region) { return left_in(api, region, machine); });
    }
    Result<> remove_leftover(const Leftover& leftover) override {
        const size_t slash = leftover.id.find('/');
        const std::string region = leftover.id.substr(0, slash);
        auto removed = http::poll(world_, group_seconds_max, [&]() -> Result<bool> {
            auto done = remove_group(api_, region, leftover.id.substr(slash + 1));
            if (!done) return done.error();
            return *done == Removed::yes;
        });
        if (!removed) return removed.error();
        if (*removed) return Ok{};
        return Error{Error::Kind::remote, "the " + leftover.what + " is still in use",
                     "it costs nothing; what uses it is shown at https://console.aws.amazon.com/ec2"};
    }

    Result<> resize(const std::string& text, const std::string& offer) override {
        return understood("AWS", [&]() -> Result<> {
            auto id = known(text);
            if (!id) return id.error();
            auto reply = api_.ask({.region = id->region,
                                   .action = "ModifyInstanceAttribute",
                                   .parameters = {{"InstanceId", id->id}, {"InstanceType.Value", offer}}});
            if (!reply) return reply.error();
            if (reply->ok()) return Ok{};
            Error refused = api_.refused(reply->refusal);
            if (reply->refusal.code == "IncorrectInstanceState")
                refused.hint = "only a stopped machine can change its size: `tnr stop` it first";
            return refused;
        });
    }

    Result<> snapshot(const std::string& text, const std::string& name) override {
        return understood("AWS", [&]() -> Result<> {
            auto id = known(text);
            if (!id) return id.error();
            auto machine = this->machine(text);
            if (!machine) return machine.error();
            return make_image(api_, id->region, id->id, machine->name, name);
        });
    }

    Result<std::vector<Snapshot>> snapshots() override {
        return in_all_regions<Snapshot>(api_, world_, [](Api& api, const std::string& region) {
            auto images = own_images(api, region);
            if (!images) return images;
            for (auto& image : *images) image.id = Id{region, image.id}.text();
            return images;
        });
    }

    Result<> delete_snapshot(const std::string& text) override {
        return understood("AWS", [&]() -> Result<> {
            auto id = known(text);
            return id ? delete_image(api_, id->region, id->id) : Result<>{id.error()};
        });
    }

    Result<> open_ports(const std::string& text, const std::vector<int>& ports) override {
        return understood("AWS", [&]() -> Result<> {
            auto id = known(text);
            if (!id) return id.error();
            auto machine = this->machine(text);
            if (!machine) return machine.error();
            auto own = groups(api_, id->region, machine->name);
            if (!own) return own.error();
            if (own->empty())
                return Error{
                    Error::Kind::remote, "the security group tnr-" + machine->name + " is gone",
                    "somebody has removed it; the machine's own groups are at https://console.aws.amazon.com/ec2"};
            return set_ports(api_, id->region, own->front().id, ports);
        });
    }

    // AWS charges a cent for each question, so it is asked once a day.
    Result<Costs> costs() override {
        auto dated = http::daily(world_, "aws-costs", api_.endpoint("ce", "us-east-1"), [&]() -> Result<Json> {
            const auto [first, end] = month_of(world_.now());
            return api_.json("ce", "AWSInsightsIndexService.GetCostAndUsage",
                             {{"TimePeriod", {{"Start", first}, {"End", end}}},
                              {"Granularity", "MONTHLY"},
                              {"Metrics", {"UnblendedCost"}}});
        });
        if (!dated) return dated.error();
        return understood("AWS", [&]() -> Result<Costs> {
            Costs costs{.currency = "USD",
                        .source = "AWS Cost Explorer, the whole account, without credits to come",
                        .date = dated->date};
            for (const auto& period : dated->body.at("ResultsByTime")) {
                const Json& total = period.at("Total").at("UnblendedCost");
                costs.currency = total.at("Unit");
                costs.this_month = costs.this_month.value_or(0) + http::balance_in(total.at("Amount"));
            }
            return costs;
        });
    }

private:
    Result<> bring(const std::string& text, const Change& what) {
        return understood("AWS", [&]() -> Result<> {
            auto id = known(text);
            return id ? change(api_, world_, *id, what) : Result<>{id.error()};
        });
    }

    // An id without a region is one of the configured region.
    Result<Id> known(const std::string& text) {
        Id id = Id::of(text);
        auto region = id.region.empty() ? api_.home() : Result<std::string>{id.region};
        if (!region) return region.error();
        id.region = *region;
        // A host's name is made of it.
        const bool plain = std::all_of(id.region.begin(), id.region.end(),
                                       [](unsigned char c) { return std::isalnum(c) || c == '-'; });
        if (plain) return id;
        return Error{Error::Kind::not_found, "'" + text + "' is no id at AWS"};
    }

    Result<std::string> known_region(const std::string& wanted) {
        auto home = api_.home();
        if (!home || wanted.empty() || wanted == *home) return home;
        auto all = regions(api_);
        if (!all) return all.error();
        std::string list;
        for (const auto& each : *all) {
            if (each == wanted) return wanted;
            list += (list.empty() ? "" : ", ") + each;
        }
        return Error{Error::Kind::usage,
                     "there is no region '" + wanted + "' at AWS, or your account has not enabled it",
                     "regions: " + list};
    }

    // A snapshot can be used where it is.
    Result<std::string> region_for(const Order& order) {
        const Id image = Id::of(order.image);
        if (!order.region.empty() && !image.region.empty() && order.region != image.region)
            return Error{Error::Kind::usage, "the snapshot " + order.image + " is not in " + order.region,
                         "a machine made from it must be in " + image.region};
        return known_region(order.region.empty() ? image.region : order.region);
    }

    Result<Offer> choose(const std::vector<Offer>& offers, Order order, const std::string& region) const {
        order.region = region;
        auto offer = choose_offer(offers, order);
        if (!offer && offer.error().kind == Error::Kind::remote && !subnet_.empty())
            return Error{Error::Kind::remote, offer.error().what + ", in the zone of " + subnet_,
                         "another subnet in TNR_AWS_SUBNET may have it" +
                             (offer.error().hint.empty() ? "" : "; " + offer.error().hint)};
        const bool there =
            std::any_of(offers.begin(), offers.end(), [&](const Offer& each) { return each.name == order.offer; });
        if (offer || order.offer.empty() || there) return offer;
        return Error{Error::Kind::usage, "region " + region + " does not have size '" + order.offer + "'",
                     offer.error().hint + "; other regions may have it: --region"};
    }

    Result<std::set<std::string>> in_subnets_zone(const std::string& region) {
        auto place = find_place(api_, region, subnet_);
        if (!place) return place.error();
        return offered_in(api_, region, "availability-zone", place->zone);
    }

    Error group_taken(const std::string& machine) const {
        return name_taken(machine, ": by another order, or for a minute by a machine that was just removed");
    }

    Result<Machine> run(const Order& order, const Offer& offer, const Image& image, const Place& place,
                        const std::string& group, const std::vector<Offer>& all) {
        const int disk_gib = std::max(disk_gib_min, image.disk_gib);
        Parameters parameters = {
            {"ImageId", image.id},
            {"InstanceType", offer.name},
            {"MinCount", "1"},
            {"MaxCount", "1"},
            // The group is of this order alone. With it, an order that is sent twice makes one machine.
            {"ClientToken", group},
            {"UserData", base64(order.user_data)},
            {"InstanceInitiatedShutdownBehavior", "stop"},
            {"MetadataOptions.HttpTokens", "required"},
            {"NetworkInterface.1.DeviceIndex", "0"},
            {"NetworkInterface.1.AssociatePublicIpAddress", "true"},
            {"NetworkInterface.1.DeleteOnTermination", "true"},
            {"NetworkInterface.1.SecurityGroupId.1", group},
            {"BlockDeviceMapping.1.DeviceName", image.root_device},
            {"BlockDeviceMapping.1.Ebs.VolumeSize", std::to_string(disk_gib)},
            {"BlockDeviceMapping.1.Ebs.VolumeType", volume_type},
            {"BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"}};
        if (!place.subnet.empty()) parameters.emplace_back("NetworkInterface.1.SubnetId", place.subnet);
        add_tags(parameters, 1, "instance", order.name, order.name);
        add_tags(parameters, 2, "volume", order.name, order.name);
        auto reply = api_.ask({.region = offer.region, .action = "RunInstances", .parameters = parameters});
        // Without an answer there may be a machine, and it would want its group.
        if (!reply) return reply.error();
        if (!reply->ok()) return not_made(reply->refusal, offer, group, all, order.name);
        auto found = instance_in(offer.region, reply->body.root().first_element_by_path("instancesSet/item"));
        found.machine.name = order.name;
        found.disk_gib = disk_gib;
        // EC2's parts learn from each other with a delay: the next question must not be told that there is no such machine.
        auto seen = http::poll(world_, new_thing_seconds_max, [&]() -> Result<bool> {
            auto there = machine(found.machine.id);
            if (!there && there.error().kind != Error::Kind::not_found) return there.error();
            return bool(there);
        });
        return seen ? Result<Machine>{priced(found)} : Result<Machine>{seen.error()};
    }

    Error not_made(const Refusal& refusal, const Offer& offer, const std::string& group, const std::vector<Offer>& all,
                   const std::string& name) {
        Error error = api_.refused(refusal);
        (void)remove_group(api_, offer.region, group);
        // Another order of that name has replaced the group meanwhile.
        if (refusal.code == "InvalidGroup.NotFound" || refusal.code == "IdempotentParameterMismatch")
            return group_taken(name);
        if (is_sold_out(refusal)) {
            error.what = "'" + offer.name + "' is sold out in " + offer.region + " (" + error.what + ")";
            error.hint = nearest_offer(all, offer);
        }
        return error;
    }

    Machine priced(const Instance& found) {
        Machine machine = found.machine;
        machine.price = prices_.of_type(machine.region, machine.offer).price(machine.offer, found.disk_gib);
        return machine;
    }

    // The groups of a machine that is no more; "": of all such machines of that region.
    static Result<std::vector<Leftover>> left_in(Api& api, const std::string& region, const std::string& machine) {
        std::vector<Leftover> left;
        auto found = groups(api, region, machine);
        if (!found) return found.error();
        if (found->empty()) return left;
        auto alive = instances(api, region, {{"Filter.1.Name", "tag-key"}, {"Filter.1.Value.1", tag_name}});
        if (!alive) return alive.error();
        for (const auto& group : *found)
            if (std::none_of(alive->begin(), alive->end(), [&](const Instance& other) {
                    return !other.ended && other.machine.name == group.machine;
                }))
                left.push_back({region + "/" + group.id, "security group " + group.id + " in " + region});
        return left;
    }

    CloudWorld world_;
    Api api_;
    Prices prices_;
    std::string subnet_;
};

}  // namespace
}  // namespace tnr::aws

namespace tnr {
extern const Cloud aws_cloud;
const Cloud aws_cloud = {
    .name = "aws",
    .secrets = {{"access_key_id", "access key id"},
                {"secret_access_key", "secret access key"},
                {"session_token", "session token", true},
                {"region", "region", true}},
    .where_to_get = "https://console.aws.amazon.com/iam, at your user under Security credentials",
    .sources = "AWS_ACCESS_KEY_ID and its siblings, AWS_PROFILE, ~/.aws",
    .standard = aws::standard,
    .ambient = aws::ambient,
    .make = [](const Credentials& credentials, const CloudWorld& world) -> std::unique_ptr<Provider> {
        return std::make_unique<aws::Aws>(credentials, world);
    }};
}  // namespace tnr
