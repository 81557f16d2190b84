// The XDG folders, as the XDG base directory specification words them.
#include "api_client/base/paths.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace tnr {
namespace {

namespace fs = std::filesystem;

fs::path home() {
    if (const char* home = std::getenv("HOME"); home && *home == '/') return home;
    // A service without HOME still has an entry in the user database.
    if (const passwd* entry = ::getpwuid(::getuid()); entry && entry->pw_dir) return entry->pw_dir;
    return "/";
}

// Parents too are made 0700: the specification asks that of every folder that had to be created.
void make_private(const fs::path& folder) {
    std::error_code ignored;
    const fs::path parent = folder.parent_path();
    if (parent != folder && !fs::exists(parent, ignored)) make_private(parent);
    ::mkdir(folder.c_str(), 0700);
}

fs::path folder(const char* variable, const char* below_home) {
    const char* value = std::getenv(variable);
    // A relative value is invalid, says the specification, and to be ignored.
    fs::path path = (value && *value == '/' ? fs::path(value) : home() / below_home) / "tnr";
    std::error_code ignored;
    if (!fs::exists(path, ignored)) make_private(path);
    return path;
}

}  // namespace

fs::path config_dir() {
    return folder("XDG_CONFIG_HOME", ".config");
}
fs::path state_dir() {
    return folder("XDG_STATE_HOME", ".local/state");
}
fs::path cache_dir() {
    return folder("XDG_CACHE_HOME", ".cache");
}

}  // namespace tnr
