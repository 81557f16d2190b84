// See setup.hpp.
#include "cli/setup.hpp"

#include <nlohmann/json.hpp>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr::cli {
namespace {

// The record is JSON.
bool is_text(const std::string& bytes) try {
    (void)nlohmann::json(bytes).dump();
    return bytes.find('\0') == std::string::npos;
} catch (const nlohmann::json::exception&) {
    return false;
}

}  // namespace

Result<> wish_setup(Record& record, const std::string& path, const std::function<void()>& on_wait) {
    if (path.empty()) return Ok{};
    auto script = read_users_file(path, on_wait);
    if (!script && interrupt::interrupted()) return script.error();
    if (!script) return Error{Error::Kind::usage, "cannot read the setup script: " + script.error().what};
    auto refused = [&](const std::string& why) {
        return Error{Error::Kind::usage, "the setup script '" + path + "' " + why,
                     "a short one may fetch what it needs, or `tnr sync` brings it"};
    };
    if (script->empty()) return refused("is empty");
    if (script->size() > setup_bytes_max) return refused("is larger than 256 KiB");
    if (!is_text(*script)) return refused("is no text");
    if (*script == record.setup) return Ok{};
    record.setup = *script;
    record.setup_done = false;
    return Ok{};
}

bool wants_setup(const Record& record) {
    return !record.setup.empty() && !record.setup_done;
}

Result<> run_setup(Record& record, MachineAccess& access, ui::Progress& progress) {
    if (!wants_setup(record)) return Ok{};
    progress.begin("running the setup script");
    auto code = access.run_script(record.setup, [&](const std::string& line) { progress.say("  | " + line); });
    if (!code) return code.error();
    if (*code != 0)
        return Error{Error::Kind::remote,
                     "the setup script on '" + record.name + "' ended with exit code " + std::to_string(*code),
                     "`tnr start " + record.name + "` runs it again; mended, with --setup FILE"};
    progress.end();
    record.setup_done = true;
    return Ok{};
}

}  // namespace tnr::cli
