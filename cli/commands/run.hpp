// `tnr run`: a program on this computer, a GPU from the pool.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/session.hpp"

namespace tnr::cli {

struct RunOptions {
    std::string gpu = {};      // "h100" or "h100:2"; empty: the pool's only type
    std::string pool = {};     // address; empty: the one last signed in to
    std::string profile = {};  // file for TNR_PROFILE; empty: none
    std::string wait = {};     // for a GPU, when all are in use: "5m", "forever"; empty: not at all
    std::vector<std::string> words;
    bool dry_run = false;
    bool over_budget = false;
};

// What a run is called at the pool: "run-HOST-PROCESS". A host's name may be longer than one there, or have other letters.
std::string name_of_run(std::string host, int64_t process);

// Becomes the program, so it returns only after a dry run or when something went wrong.
Result<> run(Session& session, const RunOptions& options);

}  // namespace tnr::cli
