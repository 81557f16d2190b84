// The clouds by name. A list and not self-registration: a static object in a static library whose file nobody names
// would vanish without a word, and a list is where a reader looks first.
#include <cstdlib>
#include <random>

#include "api_client/base/paths.hpp"
#include "api_client/cloud.hpp"
#include "api_client/tool_files.hpp"

namespace tnr {

extern const Cloud local_cloud, aws_cloud, gcp_cloud, azure_cloud, hetzner_cloud, digitalocean_cloud, thunder_cloud;

namespace {

// Files and variables often end in a line break that is no part of the token in them.
Cloud taking_bare_credentials(Cloud cloud) {
    cloud.make = [make = cloud.make](const Credentials& given, const CloudWorld& world) {
        Credentials bare = given;
        for (auto& [name, value] : bare.values) value = stripped(value);
        return make(bare, world);
    };
    return cloud;
}

}  // namespace

// Copied when first asked for: the originals, each in a file of its own, are made in an unknown order before main.
const std::vector<Cloud>& clouds() {
    static const std::vector<Cloud> all = [] {
        std::vector<Cloud> clouds;
        for (const Cloud* cloud :
             {&local_cloud, &aws_cloud, &gcp_cloud, &azure_cloud, &hetzner_cloud, &digitalocean_cloud, &thunder_cloud})
            clouds.push_back(taking_bare_credentials(*cloud));
        return clouds;
    }();
    return all;
}

std::vector<std::string> provider_names() {
    std::vector<std::string> names;
    for (const Cloud& cloud : clouds()) names.push_back(cloud.name);
    return names;
}

Result<Cloud> find_cloud(const std::string& name) {
    std::string known;
    for (const Cloud& cloud : clouds()) {
        if (cloud.name == name) return cloud;
        known += (known.empty() ? "" : ", ") + cloud.name;
    }
    return Error{Error::Kind::usage, "there is no provider '" + name + "'", "providers: " + known};
}

CloudWorld real_world(std::function<bool(int)> pause, std::function<std::string()> now) {
    CloudWorld world;
    world.http.pause = std::move(pause);
    world.http.dice = [] {
        static thread_local std::minstd_rand dice{std::random_device{}()};
        return std::uniform_real_distribution<double>{}(dice);
    };
    world.variable = [](const std::string& name) {
        const char* value = std::getenv(name.c_str());
        return std::string(value ? value : "");
    };
    world.home = world.variable("HOME");
    world.cache_folder = cache_dir();
    world.now = std::move(now);
    return world;
}

}  // namespace tnr
