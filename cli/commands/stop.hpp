// `tnr stop`: switch a machine off, keep its disk.
#pragma once

#include "cli/session.hpp"

namespace tnr::cli {

struct StopOptions {
    std::string name;
};

Result<> stop(Session& session, const StopOptions& options);

}  // namespace tnr::cli
