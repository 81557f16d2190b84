// What both directions use.
#include <random>
#include <string_view>

#include "cli/sync/copying.hpp"

namespace tnr::sync {
// Short whatever the file's own name is, since that may already be as long as a name can be.
std::string temporary_name(const std::string& path, const std::string& run, size_t number) {
    size_t slash = path.rfind('/');
    std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
    return folder + ".tnr-" + run + "-" + std::to_string(number);
}

std::string new_run() {
    std::random_device random;
    std::string run;
    while (run.size() < run_length) run += run_letters[random() % run_letters.size()];
    return run;
}

bool is_temporary(const std::string& name) {
    constexpr std::string_view begin = ".tnr-";
    if (!name.starts_with(begin)) return false;
    std::string_view rest = std::string_view(name).substr(begin.size());
    if (rest.size() < run_length + 2 || rest[run_length] != '-') return false;
    return rest.substr(0, run_length).find_first_not_of(run_letters) == std::string_view::npos &&
           rest.substr(run_length + 1).find_first_not_of("0123456789") == std::string_view::npos;
}

Result<> Copying::room() {
    while (sftp_.crowded())
        if (auto turned = sftp_.turn(); !turned) return turned;
    return so_far();
}

Result<> Copying::settled() {
    if (auto settled = sftp_.settle(); !settled) return settled;
    return so_far();
}

}  // namespace tnr::sync
