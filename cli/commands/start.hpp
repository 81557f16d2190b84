// `tnr start`: from nothing, or from wherever it stopped, to a running machine with a GPU.
#pragma once

#include <optional>
#include <string>

#include "cli/session.hpp"
#include "cli/shopping.hpp"

namespace tnr::cli {

struct StartOptions {
    std::string name;
    std::string gpu = {};        // "h100" or "h100:2"; empty: as before, else the pool's only type
    std::string pool = {};       // address; empty: as before, else the default one
    std::string provider = {};   // empty: as before, else `local`
    std::string offer = {};      // empty: the provider's default
    std::string region = {};     // empty: wherever it is cheapest
    std::string image = {};      // empty: the provider's default
    std::string setup = {};      // a script's path; empty: as before
    std::string idle_stop = {};  // as parse_duration() reads them; empty: as before
    std::string ttl = {};
    bool dry_run = false;
    bool no_wait = false;  // return when the cloud has accepted
    Wants wants = {};      // of a new machine; provider and region stand above
    bool cheapest = false;
    std::vector<std::string> silent = {};  // clouds that did not answer when it was looked for
    std::vector<std::string> tags = {};    // "project=x"; those of before stay
    bool yes = false;                      // ask nothing
    bool over_budget = false;
    std::string mode = {}, num_gpus = {};  // what the original tnr has beside --gpu
};

Result<> start(Session& session, const StartOptions& options);

// What users of the original tnr type, in our words: --mode and --num-gpus are part of a size of Thunder's, where no name
// is needed.
Result<StartOptions> in_our_words(Session& session, StartOptions options);

// What the user's settings add for a machine that is new: what one has that exists comes before them.
Result<StartOptions> with_defaults(Session& session, StartOptions options);

}  // namespace tnr::cli
