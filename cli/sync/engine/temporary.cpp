// See temporary.hpp.
#include "cli/sync/engine/temporary.hpp"

#include <ctime>
#include <random>

namespace tnr::sync {
namespace {

constexpr std::string_view temporary_begin = ".tnr-";
constexpr std::string_view run_letters = "abcdefghijklmnopqrstuvwxyz234567";
constexpr size_t run_length = 8;

}  // namespace

std::string temporary_name(const std::string& path, const std::string& letters, size_t number) {
    size_t slash = path.rfind('/');
    std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
    return folder + std::string(temporary_begin) + letters + "-" + std::to_string(number);
}

std::string new_run() {
    std::random_device random;
    std::string run;
    while (run.size() < run_length) run += run_letters[random() % run_letters.size()];
    return run;
}

bool is_temporary(const std::string& name) {
    if (!name.starts_with(temporary_begin)) return false;
    std::string_view rest = std::string_view(name).substr(temporary_begin.size());
    if (rest.size() < run_length + 2 || rest[run_length] != '-') return false;
    return rest.substr(0, run_length).find_first_not_of(run_letters) == std::string_view::npos &&
           rest.substr(run_length + 1).find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_abandoned(int64_t mtime) {
    return mtime + temporary_age_max.count() < std::time(nullptr);
}

std::string identity(const std::string& place, const Item& item) {
    std::string text =
        place.substr(place.rfind('/') + 1) + '\0' + std::to_string(item.size) + '\0' + std::to_string(item.mtime);
    uint64_t hash = 14695981039346656037u;  // FNV-1a: any hash that is the same in the next version of tnr
    for (unsigned char letter : text) hash = (hash ^ letter) * 1099511628211u;
    std::string letters;
    for (size_t i = 0; i < run_length; ++i, hash >>= 5) letters += run_letters[hash & 31];
    return letters;
}

std::string letters_of(const std::string& temporary) {
    return is_temporary(temporary) ? temporary.substr(temporary_begin.size(), run_length) : "";
}

size_t first_number() {
    return static_cast<size_t>(std::random_device{}()) * 1000000;
}

}  // namespace tnr::sync
