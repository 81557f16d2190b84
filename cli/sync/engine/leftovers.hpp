// Temporary files that earlier runs, which were cut off, have left in a destination's folders.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/sync/engine/destination.hpp"

namespace tnr::sync {

class Leftovers {
public:
    explicit Leftovers(Destination& destination) : destination_(destination) {}

    // Notes those in a folder that was there before; that of the root's parent, where the root is no folder.
    Result<> look_in(uint32_t folder);
    // Those that may be parts of a file, by its name, size and time; they lie beside its place.
    const std::vector<std::string>& parts_of(uint32_t index) const;
    // Removes those that nobody goes on with.
    void sweep();

private:
    Destination& destination_;
    std::map<std::pair<uint32_t, std::string>, std::vector<std::string>> names_;  // by folder and letters
};

}  // namespace tnr::sync
