// The user's own defaults: ~/.config/tnr/config.json, which `tnr config` writes. Each can also come from the environment.
// What is said on the command line comes first, then what a machine that exists has, then the environment, then the file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/session.hpp"

namespace tnr::cli {

struct Setting {
    std::string name;      // "idle-stop", as the option of `tnr start` is called
    std::string variable;  // "TNR_IDLE_STOP"
    std::string what;
};
// All there are.
const std::vector<Setting>& settings();
// Kind usage: there is no such setting, and what there is.
Result<Setting> find_setting(const std::string& name);
// Whether it may have this value.
Result<> check_setting(Session& session, const std::string& name, const std::string& value);

class Config {
public:
    explicit Config(Session& session);
    Result<std::map<std::string, std::string>> all() const;
    // An empty value takes the setting out.
    Result<> set(const std::string& name, const std::string& value);
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

struct Default {
    std::string value = {};   // empty: none
    std::string source = {};  // "TNR_GPU" or the file's path
};
// From the environment, else from the file.
Result<Default> default_of(Session& session, const std::string& name);
// Fills `option` with the default where the command line left it empty.
Result<> default_to(Session& session, const std::string& name, std::string& option);

}  // namespace tnr::cli
