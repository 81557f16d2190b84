// Images: those that machines are made from, and those that we make of machines.
#pragma once

#include <string>
#include <vector>

#include "api_client/provider.hpp"
#include "api_client/providers/aws/api.hpp"

namespace tnr::aws {

struct Image {
    std::string id = {}, root_device = {};
    int disk_gib = 0;  // the least that its disk needs
};
// "": the newest Debian, or Ubuntu where there is none; "debian-12", "ubuntu-24.04", …: the newest of these; "ami-…": that one.
// An Error of kind usage where there is no such image.
Result<Image> find_image(Api& api, const std::string& region, const std::string& wanted);

// An image of a machine's disk, as it is now; the machine runs on. Names are unique in a region.
Result<> make_image(Api& api, const std::string& region, const std::string& instance, const std::string& machine,
                    const std::string& name);
// Those that carry our tag. Ids are AWS's own.
Result<std::vector<Snapshot>> own_images(Api& api, const std::string& region);
// With the disk's snapshot behind it, which is what costs.
Result<> delete_image(Api& api, const std::string& region, const std::string& id);

}  // namespace tnr::aws
