// Look at the machine, bring what differs into a private folder, then one script as root puts everything in place: each
// file is written beside its old self and renamed over it, so that running programs keep the library they have mapped.
#include "cli/install/install.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/install/trouble.hpp"
#include "cli/ssh/exec.hpp"
#include "cli/ui/progress.hpp"

namespace tnr::install {
namespace {

constexpr std::string_view linker_configuration = "/usr/local/lib/tnr\n";
const std::string linker_folder = "/etc/ld.so.conf.d/", service_folder = "/etc/systemd/system/";
// So that system calls may be handed memory that the GPU had last (gpu_client/cuda/page_watch.hpp). Kernels before 5.11 do
// not know it.
constexpr const char* kernel_settings_path = "/etc/sysctl.d/60-tnr.conf";
constexpr std::string_view kernel_settings =
    "# Of tnr: read(2) and write(2) reach CUDA's managed memory.\n-vm.unprivileged_userfaultfd = 1\n";
// Some programs look for a GPU's device files before they ask CUDA, and do without a GPU where there are none (JAX does). One
// is enough for them. NVIDIA's libraries would open it, but those that programs find are ours. It is made at each boot.
constexpr const char* device_files_path = "/etc/tmpfiles.d/tnr.conf";
constexpr std::string_view device_files =
    "# Of tnr: programs that look for a GPU's device files before they ask CUDA find one.\n"
    "L /dev/nvidiactl - - - - null\n";
constexpr const char* make_device_files = "[ -e /dev/nvidiactl ] || ln -s null /dev/nvidiactl || true\n";
constexpr std::chrono::minutes script_limit{5};  // an emulated machine on a busy host

// Before every command of ours: what it complains about is to be understood (trouble.hpp), in whatever language the
// machine speaks; and Debian's ordinary users have no sbin.
constexpr const char* in_english = "export LC_ALL=C PATH=\"$PATH:/usr/sbin:/sbin\"; ";

// Our login user has sudo; where root itself logs in there may be none. Only bash knows who it is without a program.
constexpr const char* as_root =
    "as_root() { if [ \"${EUID:-$(id -u)}\" = 0 ]; then \"$@\"; else sudo -n \"$@\"; fi; }; ";

std::string trimmed(std::string text) {
    while (!text.empty() && isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
    return text;
}

// What the command printed when all went well.
Result<std::string> said(ssh::Client& client, const std::string& doing, const std::string& line,
                         const std::string& in = "") {
    auto output = ssh::capture(client, in_english + line, in, ssh::Clock::now() + script_limit);
    if (!output) return output.error();
    if (output->code == 0) return output->out;
    return explained(doing, trimmed(output->err.empty() ? output->out : output->err), client.target().name);
}

struct Survey {
    System system;
    std::set<std::string> present;  // "HASH  PATH", for those of the files that are there
};

Result<Survey> survey(ssh::Client& client, const std::vector<File>& files) {
    std::string line = "uname -m; getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1; sha256sum --";
    for (const auto& file : files) line += " " + ssh::quoted(file.path);
    auto text = said(client, "looking around", line + " 2>/dev/null || true");
    if (!text) return text.error();
    Survey found;
    std::istringstream lines{*text};
    std::getline(lines, found.system.architecture);
    std::getline(lines, found.system.c_library);
    for (std::string each; std::getline(lines, each);) found.present.insert(each);
    return found;
}

// A folder that only our user can look into: the configuration has a key in it. What an install that was cut off left
// behind is removed an hour later.
Result<std::string> make_staging(ssh::Client& client) {
    auto made = said(client, "making a folder",
                     std::string(as_root) +
                         "as_root true && umask 077 && cd \"${TMPDIR:-/tmp}\" && "
                         "{ find . -maxdepth 1 -name 'tnr-install.*' -user \"$(id -un)\" -mmin +60 -exec rm -rf {} + "
                         "2>/dev/null; mktemp -d \"$PWD/tnr-install.XXXXXX\"; }");
    if (!made) return made.error();
    return trimmed(*made);
}

std::string folder_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

std::string staged(const std::string& staging, size_t index) {
    return ssh::quoted(staging + "/" + std::to_string(index));
}

// Programs are linked with -lcuda, which looks for libcuda.so.
std::string link_line(const std::string& path) {
    constexpr std::string_view versioned = ".so.1";
    if (!path.ends_with(versioned)) return "";
    return "ln -sfn " + ssh::quoted(path.substr(path.rfind('/') + 1)) + " " +
           ssh::quoted(path.substr(0, path.size() - 2)) + "\n";
}

// On lines of their own: within `a && b` the shell's -e overlooks that a failed.
std::string place_lines(const File& file, const std::string& arrived) {
    std::ostringstream lines;
    std::string fresh = ssh::quoted(file.path + ".new");
    lines << "mkdir -p " << ssh::quoted(folder_of(file.path)) << "\ninstall -m 0" << std::oct << file.mode << " "
          << arrived << " " << fresh << "\nmv -f " << fresh << " " << ssh::quoted(file.path) << "\n"
          << link_line(file.path);
    return lines.str();
}

// A service runs from now on, with what was brought, and after each boot. `restart`: one that runs begins anew, else it
// goes on, and sees by itself that its settings have changed.
std::string service_lines(const std::vector<File>& files, bool restart) {
    std::string lines = "if [ -d /run/systemd/system ]; then\nsystemctl daemon-reload\n";
    for (const auto& file : files) {
        if (file.path.compare(0, service_folder.size(), service_folder) != 0) continue;
        std::string service = ssh::quoted(file.path.substr(service_folder.size()));
        for (const char* doing : {"enable --quiet ", restart ? "restart " : "start "})
            lines.append("systemctl ").append(doing).append(service).append("\n");
    }
    return lines + "fi\n";
}

// Run by root. The first failure ends it, with nothing half new left beside the old files.
std::string placing_script(const std::vector<File>& files, const std::vector<size_t>& missing,
                           const std::string& staging) {
    std::string clean_up = "rm -rf " + ssh::quoted(staging), places, last;
    for (size_t i : missing) {
        clean_up += " " + ssh::quoted(files[i].path + ".new");
        // The configuration is the last file, and what makes the others seen by the linker comes before it: should we be
        // cut off, it is missing, and the next install ends this.
        (i + 1 < files.size() ? places : last) += place_lines(files[i], staged(staging, i));
    }
    auto any_in = [&](const std::string& folder) {
        return std::any_of(files.begin(), files.end(),
                           [&](const File& file) { return file.path.compare(0, folder.size(), folder) == 0; });
    };
    return "set -eu\numask 022\nclean_up() { " + clean_up + "; }\ntrap clean_up EXIT\n" + places +
           (any_in(linker_folder) ? "ldconfig\n" : "") +
           (any_in(kernel_settings_path) ? std::string("sysctl -q -p ") + kernel_settings_path + " || true\n" : "") +
           (any_in(device_files_path) ? std::string(make_device_files) : "") + last +
           (any_in(service_folder) ? service_lines(files, missing.front() + 1 < files.size()) : "");
}

Result<std::vector<std::string>> send_and_place(ssh::Client& client, const std::vector<File>& files,
                                                const std::vector<size_t>& missing, const std::string& staging,
                                                const std::function<void(const std::string&)>& say) {
    std::vector<std::string> sent;
    for (size_t i : missing) {
        say(files[i].path + ", " + ui::bytes_text(static_cast<double>(files[i].bytes.size())));
        auto arrived = said(client, "bringing " + files[i].path, "umask 077 && cat > " + staged(staging, i),
                            std::string(files[i].bytes));
        if (!arrived) return arrived.error();
        sent.push_back(files[i].path);
    }
    say("putting them in place");
    auto placed =
        said(client, "installing", std::string(as_root) + "as_root sh -s", placing_script(files, missing, staging));
    if (!placed) return placed.error();
    return sent;
}

}  // namespace

std::vector<File> files_to_install(const std::vector<Embedded>& embedded, const std::string& config_text) {
    std::vector<File> files;
    for (const auto& file : embedded) {
        bool command = file.name == "nvidia-smi";
        unsigned mode = file.name.ends_with(".md") ? 0644 : 0755;
        files.push_back({(command ? "/usr/local/bin/" : "/usr/local/lib/tnr/") + file.name, mode, file.bytes});
    }
    // 00: before any other folder that might hold a libcuda.so.1
    files.push_back({linker_folder + "00-tnr.conf", 0644, linker_configuration});
    files.push_back({kernel_settings_path, 0644, kernel_settings});
    files.push_back({device_files_path, 0644, device_files});
    files.push_back({gpu_config_path, 0644, config_text});
    return files;
}

std::vector<File> timer_files(const std::string& config_text) {
    return {{"/usr/local/lib/tnr/tnr-idle", 0755, idle_program()},
            {service_folder + "tnr-idle.service", 0644, idle_service()},
            {"/etc/tnr/idle.conf", 0644, config_text}};
}

Result<std::vector<std::string>> install(ssh::Client& client, const std::vector<File>& files,
                                         const std::function<void(const std::string&)>& say) {
    auto found = survey(client, files);
    if (!found) return found.error();
    if (auto trouble = unsuitable(found->system, client.target().name)) return *trouble;
    std::vector<size_t> missing;
    for (size_t i = 0; i < files.size(); ++i)
        if (!found->present.count(sha256(files[i].bytes) + "  " + files[i].path)) missing.push_back(i);
    if (missing.empty()) return std::vector<std::string>{};

    auto staging = make_staging(client);
    if (!staging) return staging.error();
    auto sent = send_and_place(client, files, missing, *staging, say);
    // The script removes it, whatever happens to it; but it may never have been reached.
    if (!sent) (void)said(client, "cleaning up", "rm -rf " + ssh::quoted(*staging));
    return sent;
}

Result<> configure(ssh::Client& client, const std::string& config_text) {
    const std::string path = ssh::quoted(gpu_config_path), fresh = ssh::quoted(std::string(gpu_config_path) + ".new"),
                      folder = ssh::quoted(folder_of(gpu_config_path));
    // As few programs as will do: each takes an emulated machine a tenth of a second.
    std::string script = "set -eu; umask 022; [ -d " + folder + " ] || mkdir -p " + folder + "; cat > " + fresh +
                         "; exec mv -f " + fresh + " " + path;
    if (config_text.empty()) script = "exec rm -f " + path;
    auto done =
        said(client, "changing the GPU", std::string(as_root) + "as_root sh -c " + ssh::quoted(script), config_text);
    if (!done) return done.error();
    return Ok{};
}

}  // namespace tnr::install
