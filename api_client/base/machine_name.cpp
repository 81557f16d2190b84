// See machine_name.hpp.
#include "api_client/base/machine_name.hpp"

#include <algorithm>

namespace tnr {

Result<> check_machine_name(const std::string& name) {
    auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
    auto allowed = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; };
    bool good = !name.empty() && name.size() <= machine_name_bytes_max && is_letter(name.front()) &&
                std::all_of(name.begin(), name.end(), allowed) && name.back() != '-';
    if (good) return Ok{};
    return Error{Error::Kind::usage, "'" + name + "' cannot be a machine's name",
                 "a name has up to " + std::to_string(machine_name_bytes_max) +
                     " small letters, digits and dashes, and begins with a letter"};
}

std::string name_of_number(const std::string& cloud, const std::string& number) {
    return cloud + "-" + number;
}

}  // namespace tnr
