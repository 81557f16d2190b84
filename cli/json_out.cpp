// See json_out.hpp.
#include "cli/json_out.hpp"

#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {

nlohmann::json error_json(const Error& error) {
    return control::to_json(error);
}

nlohmann::json price_json(const Price& price) {
    auto number = [](const std::optional<double>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
    return {{"currency", price.currency},
            {"per_hour", number(price.running())},
            {"per_hour_stopped", number(price.stopped())},
            {"per_month", number(price.monthly())},
            {"source", price.source},
            {"date", price.date}};
}

void print_json(std::ostream& out, const nlohmann::json& document) {
    out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

}  // namespace tnr::cli
