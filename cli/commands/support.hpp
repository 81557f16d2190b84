// `tnr support`: which CUDA driver calls run, and how they travel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/session.hpp"

namespace tnr::cli {

// One symbol of the driver. A call has several where CUDA changed it: programs use that of the CUDA they were built with.
struct CallSupport {
    std::string call, symbol, since, how;
    bool runs() const { return how != "unsupported"; }
};

// The table of support.md, as callgen.py writes it.
std::vector<CallSupport> parse_support(std::string_view text);

// `name`: a call, a symbol, or a part of some; empty: the whole text. Upper and lower case are the same.
Result<> support(Session& session, std::string_view text, const std::string& name);

}  // namespace tnr::cli
