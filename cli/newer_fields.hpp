// What a newer tnr has written into a file of ours, and this one does not know: it stays.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

namespace tnr::cli {

// Adds to `object` what `before`, the same thing as it was in the file, has beside.
inline void keep_newer_fields(nlohmann::json& object, const nlohmann::json& before) {
    if (before.is_object()) object.insert(before.begin(), before.end());  // only what is not there yet
}

// The same of a list's object: `before` is the list as it was in the file, and the same thing there is the one that has all
// of `same` as it is now.
inline void keep_newer_fields(nlohmann::json& object, const nlohmann::json& before,
                              std::initializer_list<const char*> same) {
    for (const auto& old : before) {
        const auto is_same = [&](const char* key) {
            return old.is_object() && old.contains(key) && old[key] == object[key];
        };
        if (std::all_of(same.begin(), same.end(), is_same)) keep_newer_fields(object, old);
    }
}

}  // namespace tnr::cli
