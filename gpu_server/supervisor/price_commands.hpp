// `tnr-gpu-server prices`: what the operator takes for an hour of a GPU of each type. A price holds from when it is set,
// also for claims that run then; those before stay in the ledger's history, so no bill changes afterwards.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::server {

struct Money {
    std::string currency;
    int64_t micros = 0;
};
// "2.49/h", "$2.49/h", "2.49EUR/h", "0/h" (free), in dollars unless told; exact to a millionth. An Error of kind usage
// says how one looks.
Result<Money> parse_price(const std::string& text);

// Also for a type that no node has: its node may come later. `notes` gets a line about that, since most likely the name is
// misspelt. `clock_is_right`: see Store::set_price.
Result<> set_price(const std::string& gpu, const std::string& price, const std::string& state, bool clock_is_right,
                   std::ostream& out, std::ostream& notes);
// From now on the type has no price: users are told that it is not known.
Result<> remove_price(const std::string& gpu, const std::string& state, bool clock_is_right, std::ostream& out);
// Those of now, or all there ever were.
Result<> list_prices(bool history, const std::string& state, std::ostream& out);

}  // namespace tnr::server
