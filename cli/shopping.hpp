// Machines that could be ordered, at all clouds one is signed in to: found, filtered, sorted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/json_out.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

// What is asked for on the command line, as text; empty: not asked for.
struct Wants {
    std::string provider = {}, region = {};
    std::string cpus = {}, memory = {}, disk = {};  // at least; memory and disk in GiB
    std::string max_price = {};                     // by the hour: "0.05" in whatever currency, "0.05EUR"
    // "h100:2": which of the provider's own GPUs, where it brings any. For cheapest() alone.
    std::string own_gpu = {};
    bool any() const { return !(cpus + memory + disk + max_price).empty(); }
};

// The number that --cpus, --memory or --disk has: more than none, in GiB but for CPUs; 0 for an option not given.
Result<double> size_wanted(const std::string& option, const std::string& text);

struct FoundOffer {
    std::string provider;
    Offer offer;
    bool brings_gpus = false;  // its machines have GPUs of the cloud's own
};
struct Found {
    std::vector<FoundOffer> offers;  // by currency, each cheapest first; those at an unknown price are the last
    std::vector<Trouble> troubles;   // clouds that did not answer
    bool asked_a_cloud = false;      // not this computer alone
};
// Only what can be had now. Clouds one is not signed in to are passed over, unless `wants` names one. An Error of kind
// usage says what is wrong with the wants.
Result<Found> find_offers(Session& session, const Wants& wants);

// The cheapest of them that `tnr start` can set up. Where nobody is asked for, one on this computer (which is free) is
// taken only when there is no cloud. An Error tells what there is not, or that currencies would have to be compared.
Result<FoundOffer> cheapest(const Found& found, const Wants& wants);

// "hetzner cx22 in fsn1: 2 CPUs, 4 GiB, 40 GiB disk, 0.0066 EUR/h"
std::string offer_text(const FoundOffer& found);

}  // namespace tnr::cli
