// Compare, upload what differs into a private folder, then one script as root puts everything in place: each file is
// written beside its old self and renamed over it, so that running programs keep the library they have mapped.
#include "cli/install/install.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/ssh/exec.hpp"
#include "cli/ssh/sftp.hpp"
#include "cli/ui/progress.hpp"

namespace tnr::install {
namespace {

constexpr std::string_view linker_configuration = "/usr/local/lib/tnr\n";
constexpr std::chrono::minutes script_limit{5};  // an emulated machine on a busy host

ssh::Deadline soon() {
    return ssh::Clock::now() + script_limit;
}

Error failed_there(const ssh::Client& client, const std::string& doing, const ssh::Output& output) {
    std::string words = output.err.empty() ? output.out : output.err;
    while (!words.empty() && isspace(static_cast<unsigned char>(words.back()))) words.pop_back();
    Error error{Error::Kind::remote, doing + " on '" + client.target().name + "' failed: " + words};
    if (words.find("No space left") != std::string::npos)
        error.hint =
            "its disk is full: `tnr connect " + client.target().name + " -- df -h`, remove something, start again";
    return error;
}

// The hashes of those files that are there, by path.
Result<std::set<std::string>> present(ssh::Client& client, const std::vector<File>& files) {
    std::string line = "sha256sum --";
    for (const auto& file : files) line += " " + ssh::quoted(file.path);
    auto output = ssh::capture(client, line + " 2>/dev/null", "", soon());
    if (!output) return output.error();
    std::set<std::string> lines;
    std::istringstream text{output->out};
    for (std::string each; std::getline(text, each);) lines.insert(each);
    return lines;
}

struct Upload {
    std::string handle;
    ssh::Reply failed;  // the first thing that went wrong
    void check(const ssh::Reply& reply) {
        if (!reply.ok() && failed.ok()) failed = reply;
    }
};

// Uploads one file; the machine's answer to the first thing that failed.
Result<ssh::Reply> upload(ssh::Sftp& sftp, const std::string& path, std::string_view bytes) {
    Upload state;
    sftp.open_file(path, ssh::Open::write_new, [&](ssh::Reply reply) {
        state.check(reply);
        state.handle = reply.bytes;
    });
    if (auto opened = sftp.settle(); !opened) return opened.error();
    if (!state.failed.ok()) return state.failed;
    for (size_t at = 0; at < bytes.size() && state.failed.ok(); at += ssh::sftp_piece_bytes) {
        sftp.write(state.handle, at, bytes.substr(at, ssh::sftp_piece_bytes),
                   [&](ssh::Reply reply) { state.check(reply); });
        while (sftp.crowded())
            if (auto turned = sftp.turn(); !turned) {
                return turned.error();
            }
    }
    sftp.close(state.handle, [&](ssh::Reply reply) { state.check(reply); });
    if (auto closed = sftp.settle(); !closed) return closed.error();
    return state.failed;
}

Result<std::string> make_staging(ssh::Client& client) {
    auto output = ssh::capture(client, "umask 077 && mktemp -d \"${TMPDIR:-/tmp}/tnr-install.XXXXXX\"", "", soon());
    if (!output) return output.error();
    if (output->code != 0 || output->out.size() < 2) return failed_there(client, "making a folder", *output);
    return output->out.substr(0, output->out.find('\n'));
}

std::string folder_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

// Run by root. `set -e`: the first failure ends it, with the old files still in place.
std::string placing_script(const std::vector<File>& files, const std::string& staging) {
    std::ostringstream script;
    script << "set -eu\n";
    std::set<std::string> folders;
    for (const auto& file : files) folders.insert(folder_of(file.path));
    for (const auto& folder : folders) script << "install -d -m 0755 " << ssh::quoted(folder) << "\n";
    auto place = [&](size_t i) {
        std::string path = ssh::quoted(files[i].path), fresh = ssh::quoted(files[i].path + ".new");
        script << "if [ -e " << staging << "/" << i << " ]; then install -m 0" << std::oct << files[i].mode << std::dec
               << " " << staging << "/" << i << " " << fresh << " && mv -f " << fresh << " " << path << "; fi\n";
    };
    for (size_t i = 0; i + 1 < files.size(); ++i) place(i);
    script << "cd /usr/local/lib/tnr\n"
           << "for name in libcuda.so libnvidia-ml.so; do if [ -e $name.1 ]; then ln -sfn $name.1 $name; fi; done\n"
           << "ldconfig\n";
    // The configuration comes last: should we be cut off before, it is still missing, and the next install ends this.
    place(files.size() - 1);
    script << "rm -rf " << staging << "\n";
    return script.str();
}

Result<std::vector<std::string>> send_and_place(ssh::Client& client, const std::vector<File>& files,
                                                const std::vector<size_t>& missing, const std::string& staging,
                                                const std::function<void(const std::string&)>& say) {
    auto sftp = ssh::Sftp::open(client);
    if (!sftp) return sftp.error();
    std::vector<std::string> sent;
    for (size_t i : missing) {
        say(files[i].path + ", " + ui::bytes_text(static_cast<double>(files[i].bytes.size())));
        auto uploaded = upload(**sftp, staging + "/" + std::to_string(i), files[i].bytes);
        if (!uploaded) return uploaded.error();
        if (!uploaded->ok())
            return failed_there(client, "uploading " + files[i].path,
                                {1, "", uploaded->message + " (is its disk full?)"});
        sent.push_back(files[i].path);
    }
    say("registering the libraries");
    auto output = ssh::capture(client, "sudo -n sh -s", placing_script(files, staging), soon());
    if (!output) return output.error();
    if (output->code != 0) return failed_there(client, "installing", *output);
    return sent;
}

}  // namespace

std::vector<File> files_to_install(const std::vector<Embedded>& embedded, const std::string& config_text) {
    std::vector<File> files;
    for (const auto& file : embedded) {
        bool command = file.name == "nvidia-smi";
        files.push_back({(command ? "/usr/local/bin/" : "/usr/local/lib/tnr/") + file.name, 0755, file.bytes});
    }
    // 00: before any other folder that might hold a libcuda.so.1
    files.push_back({"/etc/ld.so.conf.d/00-tnr.conf", 0644, linker_configuration});
    files.push_back({gpu_config_path, 0644, config_text});
    return files;
}

Result<std::vector<std::string>> install(ssh::Client& client, const std::vector<File>& files,
                                         const std::function<void(const std::string&)>& say) {
    auto there = present(client, files);
    if (!there) return there.error();
    std::vector<size_t> missing;
    for (size_t i = 0; i < files.size(); ++i)
        if (!there->count(sha256(files[i].bytes) + "  " + files[i].path)) missing.push_back(i);
    if (missing.empty()) return std::vector<std::string>{};

    auto staging = make_staging(client);
    if (!staging) return staging.error();
    auto sent = send_and_place(client, files, missing, *staging, say);
    // The script removes it when all went well; a disk that ran full must not stay so because of us.
    if (!sent) (void)ssh::capture(client, "rm -rf " + *staging, "", soon());
    return sent;
}

}  // namespace tnr::install
