// Choosing among offers, the same way at every cloud.
#pragma once

#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "api_client/vocabulary.hpp"

namespace tnr {

// The default first: the cheapest available one without a GPU on which a CUDA program's data loader has room; then the others,
// cheapest first. Offers whose price is unknown come last.
void default_first(std::vector<Offer>& offers);

// The offer that `order` means. An Error of kind usage says what there is instead: sizes, or the regions that have this one.
Result<Offer> choose_offer(const std::vector<Offer>& offers, const Order& order);

// The available offer that comes closest from above to `wanted`: in the same region if there is one. Empty: none.
// In words, for a hint: "nearest: cpx21 in fsn1 (3 CPUs, 4 GiB)".
std::string nearest_offer(const std::vector<Offer>& offers, const Offer& wanted);

}  // namespace tnr
