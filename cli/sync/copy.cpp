// What both directions use.
#include <random>

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
    std::string letters;
    for (int i = 0; i < 8; ++i) letters += "abcdefghijklmnopqrstuvwxyz234567"[random() % 32];
    return letters;
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
