// See silent_pools.hpp.
#include "cli/silent_pools.hpp"

#include <nlohmann/json.hpp>

#include "api_client/base/files.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

constexpr int64_t lately_s = 60;

Json read(const std::string& path) {
    auto text = file_exists(path) ? read_file(path) : Result<std::string>{std::string("{}")};
    Json all = text ? Json::parse(*text, nullptr, false) : Json();
    return all.is_object() ? all : Json::object();
}

// A clock that was set back makes no silence last.
bool is_late(const Json& at, int64_t now) {
    if (!at.is_number_integer()) return false;
    const auto since = at.get<int64_t>();
    return since <= now && since > now - lately_s;
}

}  // namespace

bool SilentPools::lately(const std::string& address, int64_t now) const {
    return is_late(read(path_).value(address, Json()), now);
}

void SilentPools::note(const std::string& address, bool silent, int64_t now) const {
    auto changes = [&](const Json& all) { return is_late(all.value(address, Json()), now) != silent; };
    if (!changes(read(path_))) return;  // as nearly always: nobody need wait
    (void)change_file(path_, [&]() -> Result<> {
        Json all = read(path_), kept = Json::object();
        if (!changes(all)) return Ok{};
        for (const auto& [each, at] : all.items())
            if (is_late(at, now) && each != address) kept[each] = at;
        if (silent) kept[address] = now;
        return write_file(path_, kept.dump(2) + "\n", 0600);
    });
}

}  // namespace tnr::cli
