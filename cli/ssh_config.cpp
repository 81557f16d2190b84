// See ssh_config.hpp.
#include "cli/ssh_config.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <sstream>

#include "api_client/base/files.hpp"
#include "cli/target.hpp"

namespace tnr::cli {
namespace {

constexpr const char* our_comment = "# The machines of tnr (`tnr ssh-config --remove` takes this out):";

// As ssh reads a path: in quotes, since it may have spaces, and `%` begins a token in most options.
std::string ssh_path(const std::string& path, bool tokens = true) {
    std::string text;
    for (char letter : path) text += letter == '%' && tokens ? std::string("%%") : std::string(1, letter);
    return "\"" + text + "\"";
}

// A file that others may write is refused by ssh; otherwise the user's mode is the user's business.
mode_t mode_of(const std::string& path) {
    struct stat found = {};
    return ::stat(path.c_str(), &found) == 0 ? found.st_mode & 0777 : 0600;
}

std::string folder_of_blocks(Session& session) {
    return session.state_folder + "/ssh";
}

}  // namespace

std::string ssh_host_block(Session& session, const Record& record, const Machine& machine) {
    std::ostringstream block;
    block << "Host " << record.name << "\n"
          << "    HostName " << machine.address << "\n"
          << "    Port " << machine.ssh_port << "\n"
          << "    User " << (machine.user.empty() ? login_user : machine.user) << "\n"
          << "    IdentityFile " << ssh_path(login_key_path(session.config_folder, record)) << "\n"
          << "    IdentitiesOnly yes\n"
          // The key we planted, under a name that no address can take.
          << "    HostKeyAlias tnr-" << record.name << "\n"
          << "    HostKeyAlgorithms ssh-ed25519\n"
          << "    UserKnownHostsFile " << ssh_path(SshConfig(session).known_hosts(record.name)) << "\n"
          << "    GlobalKnownHostsFile /dev/null\n"
          << "    StrictHostKeyChecking yes\n"
          << "    UpdateHostKeys no\n"
          << "    ServerAliveInterval 15\n";
    return block.str();
}

SshConfig::SshConfig(Session& session) : session_(session), folder_(folder_of_blocks(session)) {}

bool SshConfig::written() const {
    return std::filesystem::exists(folder_ + "/included");
}

std::string SshConfig::known_hosts(const std::string& name) const {
    return folder_ + "/" + name + ".known_hosts";
}

// Many keep it elsewhere, behind a link, which a renamed file would replace.
std::string SshConfig::user_file() const {
    std::string path = session_.world.home + "/.ssh/config";
    std::error_code failed;
    auto real = std::filesystem::canonical(path, failed);
    return failed ? path : real.string();
}

std::string SshConfig::include_line() const {
    return "Include " + ssh_path(folder_ + "/*.conf", false);
}

Result<std::string> SshConfig::without_our_lines() const {
    auto text = file_exists(user_file()) ? read_file(user_file()) : Result<std::string>{std::string()};
    if (!text) return text;
    std::istringstream lines{*text};
    std::string rest;
    for (std::string line; std::getline(lines, line);)
        if (line != our_comment && line != include_line()) rest += line + "\n";
    return rest;
}

Result<> SshConfig::include() {
    auto rest = without_our_lines();
    if (!rest) return rest.error();
    if (auto made = write_file(folder_ + "/included", ""); !made) return made;
    std::string wanted = std::string(our_comment) + "\n" + include_line() + "\n" + *rest;
    auto now = read_file(user_file());
    return now && *now == wanted ? Result<>{Ok{}} : write_file(user_file(), wanted, mode_of(user_file()));
}

Result<> SshConfig::remove_all() {
    auto rest = without_our_lines();
    if (!rest) return rest.error();
    if (file_exists(user_file()))
        if (auto written = write_file(user_file(), *rest, mode_of(user_file())); !written) return written;
    std::error_code failed;
    std::filesystem::remove_all(folder_, failed);
    return failed ? Result<>{file_error("cannot remove", folder_, failed.value())} : Result<>{Ok{}};
}

Result<> SshConfig::put(const Record& record, const Machine& machine) {
    if (!written() || machine.address.empty() || record.host_key.empty()) return Ok{};
    auto known = write_file(known_hosts(record.name), "tnr-" + record.name + " " + record.host_key + "\n");
    if (!known) return known;
    return write_file(folder_ + "/" + record.name + ".conf", ssh_host_block(session_, record, machine));
}

Result<> SshConfig::remove(const std::string& name) {
    if (!written()) return Ok{};
    if (auto removed = remove_file(folder_ + "/" + name + ".conf"); !removed) return removed;
    return remove_file(known_hosts(name));
}

}  // namespace tnr::cli
