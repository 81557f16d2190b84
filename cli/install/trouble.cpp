// See trouble.hpp.
#include "cli/install/trouble.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace tnr::install {
namespace {

// What our libraries are built for: they come out of the same build as this program.
#if defined(__x86_64__)
const std::string our_architecture = "x86_64";
#elif defined(__aarch64__)
const std::string our_architecture = "aarch64";
#else
#error "name this architecture as `uname -m` does"
#endif

// The newest glibc symbols that our libraries need; tests/packaging/shipped_outputs keeps it true.
constexpr int glibc_major_min = 2, glibc_minor_min = 34;

struct Advice {
    std::vector<const char*> signs;  // one of them is in what the machine said
    const char* cause;
    const char* what_to_do;  // %s: the machine's name
};

const std::vector<Advice> advices = {
    {{"No space left on device", "Disk quota exceeded"},
     "its disk is full",
     "see what takes the space: `tnr connect %s -- df -h`, remove something, then `tnr start %s` continues"},
    {{"Read-only file system"},
     "its file system is read-only, as it becomes after disk errors",
     "see what happened: `tnr connect %s -- sudo dmesg`; a restart checks the disk: `tnr stop %s`, `tnr start %s`"},
    {{"sudo: a password is required", "sudo: a terminal is required", "sudo: sorry", "sudo: command not found",
      "sudo: not found", "sudoers"},
     "its login user has no sudo without a password, which installing needs",
     "use an image with sudo and cloud-init in it, as the default one has"},
    {{"Permission denied"},
     "its login user may not write there",
     "see who may: `tnr connect %s -- ls -ld /tmp /usr/local`"},
};

bool any_in(const std::vector<const char*>& signs, const std::string& words) {
    return std::any_of(signs.begin(), signs.end(),
                       [&](const char* sign) { return words.find(sign) != std::string::npos; });
}

std::string with_name(const char* text, const std::string& machine) {
    std::string whole = text;
    for (size_t at = 0; (at = whole.find("%s", at)) != std::string::npos; at += machine.size())
        whole.replace(at, 2, machine);
    return whole;
}

bool too_old(const std::string& c_library) {
    int major = 0, minor = 0;
    if (std::sscanf(c_library.c_str(), "glibc %d.%d", &major, &minor) != 2) return false;
    return major < glibc_major_min || (major == glibc_major_min && minor < glibc_minor_min);
}

}  // namespace

std::optional<Error> unsuitable(const System& system, const std::string& machine) {
    const std::string other_image =
        "use an image of Debian 12, Ubuntu 22.04, RHEL 9 or newer: `tnr delete " + machine + "`, then start it anew";
    if (!system.architecture.empty() && system.architecture != our_architecture)
        return Error{Error::Kind::usage,
                     "'" + machine + "' has a CPU of type " + system.architecture + "; the GPU libraries are for " +
                         our_architecture,
                     "choose a size of machine with such a CPU: `tnr delete " + machine + "`, then start it anew"};
    if (too_old(system.c_library))
        return Error{Error::Kind::usage,
                     "'" + machine + "' is too old: it has " + system.c_library + ", the GPU libraries need glibc " +
                         std::to_string(glibc_major_min) + "." + std::to_string(glibc_minor_min),
                     other_image};
    if (system.c_library.compare(0, 4, "musl") == 0)
        return Error{
            Error::Kind::usage,
            "'" + machine + "' has " + system.c_library + ", for which there are no CUDA programs; they need glibc",
            other_image};
    return std::nullopt;
}

Error explained(const std::string& doing, const std::string& words, const std::string& machine) {
    std::string failed = doing + " on '" + machine + "' failed: ";
    for (const auto& advice : advices)
        if (any_in(advice.signs, words))
            return Error{Error::Kind::remote, failed + advice.cause + " (" + words + ")",
                         with_name(advice.what_to_do, machine)};
    return Error{Error::Kind::remote, failed + (words.empty() ? "it said nothing" : words)};
}

}  // namespace tnr::install
