// What git leaves out of a folder for reasons that lie outside of it: rules of the folders above, up to the repository's root, of
// info/exclude and of the user's core.excludesFile; and what it tracks all the same.
//
// git itself is asked, which knows of worktrees, includes, all forms of an index, and whom to trust. Where there is none, or it
// refuses (the repository is another user's), nothing outside of the folder counts.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_set>

#include "api_client/base/result.hpp"

namespace tnr::sync {

class IgnoreRules;

struct Repository {
    // Null where there are none; so it is in a folder that git leaves out as a whole: who names it wants what is in it.
    std::shared_ptr<const IgnoreRules> rules = {};
    // Paths below the folder that git tracks, though rules of its own leave them out; and the folders that these are in.
    std::unordered_set<std::string> tracked = {}, folders_of_tracked = {};
};

// git answers within milliseconds; where disks are slow or asleep, within seconds.
inline constexpr std::chrono::seconds git_patience{60};

// Of the folder `root`, which need not be in a repository. An Error when git is there and gives no answer.
Result<Repository> repository_of(const std::string& root, std::chrono::milliseconds patience = git_patience);

}  // namespace tnr::sync
