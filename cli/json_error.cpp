// One spelling of an error for --json and for control messages.
#include "cli/json_error.hpp"

#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {

nlohmann::json error_json(const Error& error) {
    return control::to_json(error);
}

}  // namespace tnr::cli
