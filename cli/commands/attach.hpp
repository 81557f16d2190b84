// `tnr attach`, `tnr detach`: the GPU of a machine for programs started from now on.
#pragma once

#include <string>

#include "cli/session.hpp"

namespace tnr::cli {

struct AttachOptions {
    std::string name;
    std::string gpu = {};  // "h100" or "h100:2"; empty: the pool's only type
};
Result<> attach(Session& session, const AttachOptions& options);
Result<> detach(Session& session, const std::string& name);

}  // namespace tnr::cli
