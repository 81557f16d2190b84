// See snapshots.hpp.
#include "cli/snapshots.hpp"

#include <filesystem>

namespace tnr::cli {

FoundSnapshots find_snapshots(Session& session, const std::string& provider) {
    FoundSnapshots all;
    auto names = provider.empty() ? session.provider_names : std::vector<std::string>{provider};
    ui::Progress progress(session.screen());
    for (const auto& name : names) {
        progress.begin("asking provider " + name, asking_patience);
        auto opened = session.provider(name);
        auto snapshots = opened ? (*opened)->snapshots() : Result<std::vector<Snapshot>>{opened.error()};
        if (snapshots)
            for (auto& snapshot : *snapshots) all.found.push_back({name, std::move(snapshot)});
        // Who is asked for all has no interest in those that have none.
        const bool signed_in = opened || opened.error().kind != Error::Kind::auth;
        bool told = !provider.empty() || (!snapshots && signed_in && snapshots.error().kind != Error::Kind::usage);
        if (!snapshots && told) all.troubles.push_back({name, snapshots.error()});
    }
    progress.end();
    return all;
}

Result<std::string> image_for(Provider& provider, const std::string& image) {
    std::error_code failed;
    if (std::filesystem::exists(image, failed)) return std::filesystem::absolute(image, failed).string();
    auto snapshots = provider.snapshots();
    if (!snapshots && snapshots.error().kind == Error::Kind::usage) return image;  // it has none
    if (!snapshots) return snapshots.error();
    const Snapshot* named = nullptr;
    for (const auto& snapshot : *snapshots) {
        if (snapshot.id == image) return image;
        if (snapshot.name != image) continue;
        if (named)
            return Error{Error::Kind::usage, "two snapshots are called '" + image + "'",
                         "say which by its id: " + named->id + " or " + snapshot.id};
        named = &snapshot;
    }
    if (!named) return image;
    if (!named->ready)
        return Error{Error::Kind::remote, "the snapshot '" + image + "' is not ready yet", "try again in a minute"};
    return named->id;
}

}  // namespace tnr::cli
