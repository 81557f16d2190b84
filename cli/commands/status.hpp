// `tnr status`: the user's machines and the pools' GPUs.
#pragma once

#include <string>
#include <vector>

#include "cli/listing.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

struct StatusOptions {
    std::vector<std::string> names = {};  // empty: all
    ListOptions list = {};
    bool watch = false;
};

Result<> status(Session& session, const StatusOptions& options = {});

}  // namespace tnr::cli
