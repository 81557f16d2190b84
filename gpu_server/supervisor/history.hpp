// What this node believed, and when: a line of JSON each, for tests that look afterwards whether any two nodes ever believed
// in the same GPU. Times are of the machine's clock since its boot, which all processes share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api_client/base/handles.hpp"

namespace tnr::server {

class History {
public:
    // `path` empty: nothing is written.
    History(const std::string& path, std::string node);
    void note(const std::string& event, nlohmann::json more);
    bool wanted() const { return static_cast<bool>(file_); }

private:
    UniqueFd file_;
    std::string node_;
};

}  // namespace tnr::server
