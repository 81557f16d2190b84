// Names that both directions use.
#include "cli/sync/copy.hpp"

#include <random>

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

}  // namespace tnr::sync
