// `tnr stop`: switch machines off, keep their disks.
#pragma once

#include <string>
#include <vector>

#include "cli/session.hpp"

namespace tnr::cli {

struct StopOptions {
    std::vector<std::string> names;
};

// Each of them, whatever becomes of the others.
Result<> stop(Session& session, const StopOptions& options);

}  // namespace tnr::cli
