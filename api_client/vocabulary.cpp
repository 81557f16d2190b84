// See vocabulary.hpp.
#include "api_client/vocabulary.hpp"

namespace tnr {
namespace {

constexpr double hours_per_month = 730;

std::optional<double> sum(std::initializer_list<std::optional<double>> parts) {
    double all = 0;
    for (const auto& part : parts) {
        if (!part) return std::nullopt;
        all += *part;
    }
    return all;
}

}  // namespace

std::optional<double> Price::running() const {
    return sum({machine, disk, address});
}

std::optional<double> Price::stopped() const {
    return billed_while_stopped ? running() : sum({disk, address});
}

std::optional<double> Price::monthly() const {
    if (month) return month;
    auto hour = running();
    return hour ? std::optional<double>{*hour * hours_per_month} : std::nullopt;
}

Price free_of_charge() {
    Price price;
    price.machine = price.disk = price.address = 0;
    return price;
}

}  // namespace tnr
