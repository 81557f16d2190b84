// What machines were at which time, and what they cost then: ~/.local/state/tnr/history.jsonl, 0600, one line each time a
// machine was seen to have changed. Lines are only ever appended, so the costs of a machine outlive it and its record.
//
// Commands write down what they see: `start`, `stop` and `delete` what they did, `status` and `billing` what happened
// elsewhere. Such a change counts from the moment it was seen.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api_client/base/result.hpp"
#include "api_client/vocabulary.hpp"

namespace tnr::cli {

struct Record;

struct Sighting {
    std::string at;  // UTC, ISO 8601
    std::string provider, id, name;
    MachineState state = MachineState::running;
    Price price = {};  // as it was then
    std::string gpu = {};
    int gpu_count = 0;
    std::string region = {}, size = {};
    std::map<std::string, std::string> tags = {};
};
// `machine` as its provider shows it; what is ours comes from `record`.
Sighting sighting_of(const std::string& at, const std::string& provider, const Machine& machine, const Record& record);

class History {
public:
    explicit History(std::string path) : path_(std::move(path)) {}

    struct All {
        std::vector<Sighting> sightings;  // oldest first
        int damaged = 0;                  // lines that make no sense, which were passed over
    };
    Result<All> all() const;
    // Writes down those that differ, in more than their time, from the last one of the same machine; oldest first. Two
    // `tnr` may do so at once.
    Result<> note(const std::vector<Sighting>& sightings);

private:
    std::string path_;
};

// The last sighting of each machine, by provider and id.
std::map<std::pair<std::string, std::string>, Sighting> last_of_each(const std::vector<Sighting>& sightings);

}  // namespace tnr::cli
