// What all drivers share.
#include "api_client/provider.hpp"

#include "api_client/offers.hpp"

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

Result<> Provider::check(const Order& order) {
    auto all = offers();
    if (!all) return all.error();
    auto offer = choose_offer(*all, order);
    if (!offer && offer.error().kind == Error::Kind::usage) return offer.error();
    return Ok{};
}

Error Provider::lacks(const std::string& what) const {
    return Error{Error::Kind::usage, "provider " + name() + " has no " + what};
}

Result<> Provider::resize(const std::string&, const std::string&) {
    return lacks("way to change a machine's size");
}
Result<> Provider::snapshot(const std::string&, const std::string&) {
    return lacks("snapshots");
}
Result<std::vector<Snapshot>> Provider::snapshots() {
    return lacks("snapshots");
}
Result<> Provider::delete_snapshot(const std::string&) {
    return lacks("snapshots");
}
Result<> Provider::open_ports(const std::string&, const std::vector<int>&) {
    return lacks("firewall");
}
Result<Costs> Provider::costs() {
    return lacks("word on what it has cost");
}

}  // namespace tnr
