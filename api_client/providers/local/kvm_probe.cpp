// The probe and its memory, a file with the host's boot id and the answer.
#include "api_client/providers/local/kvm_probe.hpp"

#include <fcntl.h>

#include <fstream>
#include <sstream>
#include <string>

#include "api_client/base/files.hpp"
#include "api_client/base/handles.hpp"
#include "api_client/base/interrupt.hpp"
#include "api_client/providers/local/child.hpp"

namespace tnr::local {
namespace {

namespace fs = std::filesystem;

std::string boot_id() {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id;
}

// Without a root disk the kernel panics and, told so, reboots at once, upon which QEMU exits. A triple fault
// looks the same to QEMU, so the panic must also have been printed.
bool kernel_runs(const fs::path& kernel) {
    auto finished = run({.argv = {"qemu-system-x86_64",
                                  "-accel",
                                  "kvm",
                                  "-cpu",
                                  "host",
                                  "-machine",
                                  "q35",
                                  "-smp",
                                  "2",
                                  "-m",
                                  "256",
                                  "-nodefaults",
                                  "-no-user-config",
                                  "-display",
                                  "none",
                                  "-no-reboot",
                                  "-serial",
                                  "stdio",
                                  "-kernel",
                                  kernel.string(),
                                  "-append",
                                  "console=ttyS0 panic=-1"},
                         .limit_ms = probe_limit_ms});
    return finished && !finished->timed_out && finished->exit_code == 0 &&
           finished->output.find("Kernel panic - not syncing: VFS") != std::string::npos;
}

}  // namespace

std::optional<bool> kvm_answer(const fs::path& cache) {
    std::string boot, answer;
    auto kept = read_file(cache);
    if (kept) std::istringstream(*kept) >> boot >> answer;
    if (boot.empty() || boot != boot_id() || answer.empty()) return std::nullopt;
    return answer == "works";
}

bool kvm_works(const fs::path& kernel, const fs::path& cache) {
    // Not remembered: permission may come with the next login, when the user has joined the group kvm.
    if (!UniqueFd(::open("/dev/kvm", O_RDWR | O_CLOEXEC))) return false;
    if (auto known = kvm_answer(cache)) return *known;
    const bool works = kernel_runs(kernel);
    if (interrupt::interrupted()) return false;  // it was not let run to its end
    // A cache that cannot be written costs the next start a probe, nothing else.
    (void)write_file(cache, boot_id() + (works ? " works\n" : " hangs\n"));
    return works;
}

}  // namespace tnr::local
