// Orders by price; says what there is.
#include "api_client/offers.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "api_client/base/text.hpp"

namespace tnr {
namespace {

// Python with PyTorch takes 2 GiB before it has loaded anything.
constexpr int default_cpus_min = 2, default_memory_mib_min = 4000;
constexpr size_t names_shown_max = 12;

double price_rank(const Offer& offer) {
    return offer.price.running().value_or(std::numeric_limits<double>::infinity());
}

bool suits_as_default(const Offer& offer) {
    return offer.available && offer.gpu.empty() && offer.cpus >= default_cpus_min &&
           offer.memory_mib >= default_memory_mib_min;
}

std::string listed(const std::set<std::string>& names) {
    std::string text;
    size_t shown = 0;
    for (const auto& name : names) {
        if (++shown > names_shown_max) return text + ", … (" + std::to_string(names.size()) + " in all)";
        text += (text.empty() ? "" : ", ") + name;
    }
    return text;
}

}  // namespace

void default_first(std::vector<Offer>& offers) {
    std::stable_sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
        return std::pair(price_rank(a), a.memory_mib) < std::pair(price_rank(b), b.memory_mib);
    });
    auto first = std::find_if(offers.begin(), offers.end(), suits_as_default);
    if (first != offers.end()) std::rotate(offers.begin(), first, first + 1);
}

Result<Offer> choose_offer(const std::vector<Offer>& offers, const Order& order) {
    std::set<std::string> gpus, names, regions, regions_with_it;
    const Offer* sold_out = nullptr;
    for (const Offer& offer : offers) {
        if (!order.gpu.empty()) {
            gpus.insert(offer.gpu + ":" + std::to_string(offer.gpu_count));
            if (offer.gpu != order.gpu || offer.gpu_count != order.gpu_count) continue;
        }
        names.insert(offer.name);
        regions.insert(offer.region);
        const bool right_size = order.offer.empty()
                                    ? suits_as_default(offer) || !order.gpu.empty() || &offer == &offers.front()
                                    : offer.name == order.offer;
        if (!right_size) continue;
        regions_with_it.insert(offer.region);
        if (!order.region.empty() && offer.region != order.region) continue;
        if (offer.available) return offer;
        sold_out = &offer;
    }
    if (sold_out)
        return Error{
            Error::Kind::remote,
            "'" + sold_out->name + "' is sold out" + (sold_out->region.empty() ? "" : " in " + sold_out->region),
            nearest_offer(offers, *sold_out)};
    if (names.empty() && !order.gpu.empty())
        return Error{Error::Kind::usage,
                     "there is no machine with " + std::to_string(order.gpu_count) + " x " + order.gpu,
                     "GPUs there: " + listed(gpus)};
    if (!order.region.empty() && !regions.count(order.region))
        return Error{Error::Kind::usage, "there is no region '" + order.region + "'", "regions: " + listed(regions)};
    if (!order.offer.empty() && !names.count(order.offer))
        return Error{Error::Kind::usage, "there is no size '" + order.offer + "'", "sizes: " + listed(names)};
    return Error{Error::Kind::usage,
                 "region " + order.region + " does not have " +
                     (order.offer.empty() ? "a machine that would do" : "size '" + order.offer + "'"),
                 "regions that have it: " + listed(regions_with_it)};
}

std::string nearest_offer(const std::vector<Offer>& offers, const Offer& wanted) {
    const Offer* nearest = nullptr;
    auto rank = [&](const Offer& offer) { return std::pair(offer.region != wanted.region, price_rank(offer)); };
    for (const Offer& offer : offers) {
        const bool same = offer.name == wanted.name && offer.region == wanted.region;
        const bool enough = offer.cpus >= wanted.cpus && offer.memory_mib >= wanted.memory_mib &&
                            offer.gpu == wanted.gpu && offer.gpu_count >= wanted.gpu_count;
        if (same || !enough || !offer.available) continue;
        if (!nearest || rank(offer) < rank(*nearest)) nearest = &offer;
    }
    if (!nearest) return "";
    return "nearest: " + nearest->name + (nearest->region.empty() ? "" : " in " + nearest->region) + " (" +
           counted(static_cast<size_t>(nearest->cpus), "CPU") + ", " + std::to_string(nearest->memory_mib / 1024) +
           " GiB)";
}

}  // namespace tnr
