// What all drivers share.
#include "api_client/provider.hpp"

#include <algorithm>

#include "api_client/offers.hpp"

namespace tnr {

Result<std::vector<Offer>> Provider::offers_in(const std::string&) {
    return offers();
}

Result<> Provider::check(const Order& order) {
    auto all = offers_in(order.region);
    if (!all) return all.error();
    auto offer = choose_offer(*all, order);
    if (!offer && offer.error().kind == Error::Kind::usage) return offer.error();
    return Ok{};
}

Error Provider::name_taken(const std::string& machine, const std::string& why) const {
    return Error{Error::Kind::usage, "the name '" + machine + "' is taken at provider " + name() + why,
                 "choose another, or remove that machine with `tnr delete " + machine + " --provider " + name() + "`"};
}

Result<> Provider::name_is_free(const std::string& machine) {
    auto there = machines();
    if (!there) return there.error();
    return has(*there, machine) ? Result<>{name_taken(machine)} : Ok{};
}

Error Provider::lacks(const std::string& what) const {
    return Error{Error::Kind::usage, "provider " + name() + " has no " + what};
}

bool Provider::has(const std::vector<Machine>& machines, const std::string& name) {
    return std::any_of(machines.begin(), machines.end(),
                       [&](const Machine& each) { return each.name == name && each.state != MachineState::gone; });
}

Result<std::vector<Leftover>> Provider::leftovers(const std::string&) {
    return std::vector<Leftover>{};
}
Result<> Provider::remove_leftover(const Leftover&) {
    return Ok{};
}
Result<> Provider::remove_leftovers(const std::string& name) {
    return remove_all(leftovers(name));
}
Result<> Provider::remove_all(const Result<std::vector<Leftover>>& leftovers) {
    if (!leftovers) return leftovers.error();
    for (const auto& leftover : *leftovers)
        if (auto removed = remove_leftover(leftover); !removed) return removed;
    return Ok{};
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
Result<> Provider::let_in(const Machine&, const std::string&) {
    return lacks("way to let another key into a machine");
}
Result<Costs> Provider::costs() {
    return lacks("word on what it has cost");
}

}  // namespace tnr
