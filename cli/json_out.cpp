// See json_out.hpp.
#include "cli/json_out.hpp"

#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {

nlohmann::json error_json(const Error& error) {
    return control::to_json(error);
}

void print_json(std::ostream& out, const nlohmann::json& document) {
    out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

}  // namespace tnr::cli
