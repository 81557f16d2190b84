// Snapshots of all providers, found by the names their users gave them.
#pragma once

#include "cli/json_out.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

struct FoundSnapshot {
    std::string provider;
    Snapshot snapshot;
};

struct FoundSnapshots {
    std::vector<FoundSnapshot> found;
    std::vector<Trouble> troubles;
};

// At `provider`, or where that is empty at all that have snapshots and to which the user is signed in.
FoundSnapshots find_snapshots(Session& session, const std::string& provider);
// What Order::image shall be for `image`: a file's whole path, which means the same in another folder, or the id of the
// snapshot of that name; where it is neither, `image` itself.
Result<std::string> image_for(Provider& provider, const std::string& image);

}  // namespace tnr::cli
