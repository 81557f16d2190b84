// Debian's and Canonical's images are found by owner and name: anybody may publish one that calls itself Debian.
#include "api_client/providers/aws/images.hpp"

#include <algorithm>
#include <array>

#include "api_client/http/json_api.hpp"
#include "api_client/providers/aws/network.hpp"

namespace tnr::aws {
namespace {

struct Release {
    const char *name, *owner, *pattern;
};
constexpr const char* debian = "136693071363";
constexpr const char* canonical = "099720109477";
constexpr std::array releases = {
    Release{"debian-12", debian, "debian-12-amd64-*"},
    Release{"debian-13", debian, "debian-13-amd64-*"},
    Release{"ubuntu-24.04", canonical, "ubuntu/images/hvm-ssd*/ubuntu-noble-24.04-amd64-server-*"},
    Release{"ubuntu-22.04", canonical, "ubuntu/images/hvm-ssd*/ubuntu-jammy-22.04-amd64-server-*"},
};
constexpr std::array default_releases = {"debian-12", "ubuntu-24.04"};

Image image_in(pugi::xml_node item) {
    Image image{required(item, "imageId"), required(item, "rootDeviceName")};
    for (auto device : items(item, "blockDeviceMapping"))
        image.disk_gib = std::max(image.disk_gib, device.child("ebs").child("volumeSize").text().as_int(0));
    return image;
}

// An empty id: there is none.
Result<Image> newest(Api& api, const std::string& region, const Release& release) {
    auto found = api.list({.region = region,
                           .action = "DescribeImages",
                           .parameters = {{"Owner.1", release.owner},
                                          {"Filter.1.Name", "name"},
                                          {"Filter.1.Value.1", release.pattern},
                                          {"Filter.2.Name", "architecture"},
                                          {"Filter.2.Value.1", "x86_64"},
                                          {"Filter.3.Name", "state"},
                                          {"Filter.3.Value.1", "available"}}},
                          "imagesSet");
    if (!found) return found.error();
    auto last = std::max_element(found->items.begin(), found->items.end(),
                                 [](auto a, auto b) { return text(a, "creationDate") < text(b, "creationDate"); });
    return last == found->items.end() ? Image{} : image_in(*last);
}

Error no_image(const std::string& wanted, const std::string& region) {
    std::string known;
    for (const auto& release : releases) known += std::string(release.name) + ", ";
    return Error{Error::Kind::usage, "there is no image '" + wanted + "' in " + region,
                 "images: " + known + "the id of one of yours (ami-…), or a snapshot's id"};
}

}  // namespace

Result<Image> find_image(Api& api, const std::string& region, const std::string& wanted) {
    if (wanted.compare(0, 4, "ami-") == 0) {
        auto found = api.get({.region = region, .action = "DescribeImages", .parameters = {{"ImageId.1", wanted}}});
        if (!found && found.error().kind != Error::Kind::not_found) return found.error();
        const auto item = found ? found->root().first_element_by_path("imagesSet/item") : pugi::xml_node();
        if (!item) return no_image(wanted, region);
        return image_in(item);
    }
    for (const auto& release : releases) {
        const bool default_one = std::find(default_releases.begin(), default_releases.end(),
                                           std::string(release.name)) != default_releases.end();
        if (wanted.empty() ? !default_one : wanted != release.name) continue;
        auto image = newest(api, region, release);
        if (!image || !image->id.empty()) return image;
    }
    return no_image(wanted.empty() ? default_releases.front() : wanted, region);
}

Result<> make_image(Api& api, const std::string& region, const std::string& instance, const std::string& machine,
                    const std::string& name) {
    Parameters parameters = {{"InstanceId", instance}, {"Name", name}, {"NoReboot", "true"}};
    add_tags(parameters, 1, "image", machine, name);
    auto reply = api.ask({.region = region, .action = "CreateImage", .parameters = parameters, .repeatable = false});
    if (!reply) return reply.error();
    if (reply->ok()) return Ok{};
    if (reply->refusal.code == "InvalidAMIName.Duplicate")
        return Error{Error::Kind::usage, "the name '" + name + "' is taken by another image in " + region,
                     "choose another one"};
    return api.refused(reply->refusal);
}

// What a snapshot costs depends on how many of its blocks others share, which AWS does not tell: unknown.
Result<std::vector<Snapshot>> own_images(Api& api, const std::string& region) {
    auto found =
        api.list({.region = region,
                  .action = "DescribeImages",
                  .parameters = {{"Owner.1", "self"}, {"Filter.1.Name", "tag-key"}, {"Filter.1.Value.1", tag_name}}},
                 "imagesSet");
    if (!found) return found.error();
    std::vector<Snapshot> all;
    for (auto item : found->items) {
        const std::string named = tag(item, "Name");
        all.push_back({.id = required(item, "imageId"),
                       .name = named.empty() ? text(item, "name") : named,
                       .size_gib = static_cast<double>(image_in(item).disk_gib),
                       .created = http::utc_in(text(item, "creationDate")),
                       .ready = text(item, "imageState") == "available",
                       .currency = "USD"});
    }
    return all;
}

Result<> delete_image(Api& api, const std::string& region, const std::string& id) {
    auto gone = api.ask({.region = region,
                         .action = "DeregisterImage",
                         .parameters = {{"ImageId", id}, {"DeleteAssociatedSnapshots", "true"}}});
    if (!gone) return gone.error();
    if (!gone->ok() && !is_not_found(gone->refusal.code)) return api.refused(gone->refusal);
    // What an earlier try has left, which AWS has named after the image.
    auto left = api.list({.region = region,
                          .action = "DescribeSnapshots",
                          .parameters = {{"Owner.1", "self"},
                                         {"Filter.1.Name", "description"},
                                         {"Filter.1.Value.1", "Created by CreateImage(*) for " + id + "*"}}},
                         "snapshotSet");
    if (!left) return left.error();
    for (auto item : left->items) {
        auto removed = api.ask({.region = region,
                                .action = "DeleteSnapshot",
                                .parameters = {{"SnapshotId", required(item, "snapshotId")}}});
        if (!removed) return removed.error();
        if (!removed->ok() && !is_not_found(removed->refusal.code)) return api.refused(removed->refusal);
    }
    return Ok{};
}

}  // namespace tnr::aws
