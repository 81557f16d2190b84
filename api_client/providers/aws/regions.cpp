// See regions.hpp.
#include "api_client/providers/aws/regions.hpp"

namespace tnr::aws {

Result<std::vector<std::string>> regions(Api& api) {
    auto home = api.home();
    if (!home) return home.error();
    auto found = api.list({.region = *home, .action = "DescribeRegions"}, "regionInfo");
    if (!found) return found.error();
    return http::understood("AWS", [&]() -> Result<std::vector<std::string>> {
        std::vector<std::string> names;
        for (auto item : found->items) names.push_back(required(item, "regionName"));
        return names;
    });
}

bool is_closed_region(const Error& error) {
    return error.kind == Error::Kind::auth && error.what.find("(UnauthorizedOperation") != std::string::npos;
}

CloudWorld world_for_threads(const CloudWorld& world) {
    CloudWorld shared = world;
    if (!world.http.explain) return shared;
    // Guards the stream that `explain` writes to, for the length of a line.
    auto mutex = std::make_shared<Mutex>();
    shared.http.explain = [mutex, explain = world.http.explain](const std::string& line) {
        const LockGuard lock(*mutex);
        explain(line);
    };
    return shared;
}

}  // namespace tnr::aws
