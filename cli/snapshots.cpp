// See snapshots.hpp.
#include "cli/snapshots.hpp"

#include <filesystem>

#include "cli/side_by_side.hpp"

namespace tnr::cli {
namespace {

// What one provider says.
struct AskedProvider {
    Result<std::unique_ptr<Provider>> provider;
    Result<std::vector<Snapshot>> snapshots = std::vector<Snapshot>{};
};

std::vector<AskedProvider> ask_for_snapshots(Session& session, const std::vector<std::string>& names) {
    std::vector<AskedProvider> all;
    all.reserve(names.size());  // the questions point into it
    std::vector<std::function<void()>> questions;
    for (const auto& name : names) {
        // One that is named alone is waited for as long as it takes.
        auto& asked =
            all.emplace_back(AskedProvider{names.size() == 1 ? session.provider(name) : open_to_ask(session, name)});
        if (!asked.provider)
            asked.snapshots = asked.provider.error();
        else
            questions.emplace_back([&asked] { asked.snapshots = (*asked.provider)->snapshots(); });
    }
    ui::Progress progress(session.screen());
    progress.begin(names.size() == 1 ? "asking provider " + names[0] : "asking all providers", asking_patience);
    side_by_side(session, questions);
    progress.end();
    return all;
}

}  // namespace

FoundSnapshots find_snapshots(Session& session, const std::string& provider) {
    FoundSnapshots all;
    auto names = provider.empty() ? session.provider_names : std::vector<std::string>{provider};
    auto asked = ask_for_snapshots(session, names);
    for (size_t i = 0; i < names.size(); ++i) {
        auto& [opened, snapshots] = asked[i];
        if (snapshots)
            for (auto& snapshot : *snapshots) all.found.push_back({names[i], std::move(snapshot)});
        // Who is asked for all has no interest in those that have none.
        const bool signed_in = opened || opened.error().kind != Error::Kind::auth;
        bool told = !provider.empty() || (!snapshots && signed_in && snapshots.error().kind != Error::Kind::usage);
        if (!snapshots && told) all.troubles.push_back({names[i], snapshots.error()});
    }
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
