// Words to places.
#include "cli/sync/engine/endpoints.hpp"

#include "cli/sync/engine/tree.hpp"

namespace tnr::sync {
namespace {

std::string without_slashes(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

std::string last_part(const std::string& path) {
    std::string bare = without_slashes(path);
    size_t slash = bare.rfind('/');
    return slash == std::string::npos ? bare : bare.substr(slash + 1);
}

// "." and ".." are folders that are certainly there, and their names are not names to give to anything.
bool is_dots(const std::string& path) {
    std::string last = last_part(path);
    return last.empty() || last == "." || last == ".." || last == "~";
}

bool means_inside(const std::string& to) {
    return to.empty() || to.back() == '/' || is_dots(to);
}

}  // namespace

Endpoint parse_endpoint(const std::string& word) {
    size_t colon = word.find(':');
    if (colon == std::string::npos || colon == 0 || word.find('/') < colon) return {"", word};
    std::string path = word.substr(colon + 1);
    // People write ~ out of habit; paths are relative to the home folder anyway.
    if (path == "~") path.clear();
    if (path.compare(0, 2, "~/") == 0) path.erase(0, 2);
    return {word.substr(0, colon), path};
}

std::string final_place(const std::string& from, bool from_is_folder, const std::string& to, bool to_is_folder) {
    bool contents = from_is_folder && (from.empty() || from.back() == '/' || is_dots(from));
    bool inside = means_inside(to) || (!from_is_folder && to_is_folder);
    if (!contents && inside) return joined(to, last_part(from));
    return to.empty() ? to : without_slashes(to);
}

}  // namespace tnr::sync
