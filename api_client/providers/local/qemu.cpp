// QEMU's command line, and the ports.
#include "api_client/providers/local/qemu.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "api_client/providers/local/child.hpp"
#include "api_client/providers/local/process.hpp"
#include "api_client/providers/local/qmp.hpp"

namespace tnr::local {
namespace {

namespace fs = std::filesystem;

constexpr int launch_limit_ms = 30'000;  // opening files and sockets; a loaded host needs a second
constexpr int launch_attempts = 5;       // a port can be lost, or a disk still held, between looking and starting
constexpr auto between_attempts = std::chrono::milliseconds(100);

// A comma in an option's value is written twice.
std::string option_value(const fs::path& path) {
    std::string value;
    for (char c : path.string()) value += c == ',' ? ",," : std::string(1, c);
    return value;
}

// Emulation runs `rep movsb` a byte at a time: a guest that is told these are fast copies and clears all its pages so.
// A fifth level of page tables is one more to walk at each miss, for addresses that no guest here has.
std::vector<std::string> accelerator_words(Accelerator accelerator) {
    if (accelerator == Accelerator::kvm) return {"-accel", "kvm", "-cpu", "host"};
    return {"-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm,-la57"};
}

// For the kernel. Under emulation many seconds of a boot go into what only real silicon is better for: workarounds for
// speculation that does not happen, and modules that exist to use a CPU's extensions, which test themselves for seconds.
// And on a busy host the timer's interrupts may come so late that a kernel which counts them takes the timer for broken
// and panics.
std::string kernel_words(Accelerator accelerator) {
    std::string words = "root=/dev/vda ro console=ttyS0 quiet";
    if (accelerator == Accelerator::kvm) return words;
    return words +
           " no_timer_check mitigations=off cryptomgr.notests "
           "modprobe.blacklist=kvm,kvm_amd,kvm_intel,powernow_k8,aesni_intel,"
           "ghash_clmulni_intel,sha1_ssse3,sha256_ssse3,sha512_ssse3,crct10dif_pclmul,crc32_pclmul";
}

// No display adapter, no boot ROM, no USB, nothing that lspci would show beyond disk, network and chipset.
std::vector<std::string> command_line(const fs::path& folder, const Record& record, Accelerator accelerator, int port) {
    std::vector<std::string> words = {"qemu-system-x86_64",
                                      "-name",
                                      "tnr-" + record.name,
                                      "-nodefaults",
                                      "-no-user-config",
                                      "-daemonize",
                                      "-display",
                                      "none",
                                      "-vga",
                                      "none"};
    for (std::string& word : accelerator_words(accelerator)) words.push_back(std::move(word));
    const std::string disk = option_value(folder / "disk.qcow2"), seed = option_value(folder / "seed.img");
    words.insert(words.end(),
                 {"-machine", "q35", "-smp", std::to_string(record.cpus), "-m", std::to_string(record.memory_mib),
                  "-drive", "if=none,id=disk,format=qcow2,discard=unmap,file=" + disk, "-device",
                  std::string("virtio-blk-pci,drive=disk") + (record.has_kernel ? "" : ",bootindex=0"), "-drive",
                  "if=none,id=seed,format=raw,readonly=on,file=" + seed, "-device", "virtio-blk-pci,drive=seed",
                  // Without ipv6=off a guest tries the host's IPv6 first, also where there is none.
                  "-netdev", "user,id=net,ipv6=off,hostfwd=tcp:127.0.0.1:" + std::to_string(port) + "-:22", "-device",
                  "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci", "-chardev",
                  "file,id=serial,path=" + option_value(folder / "serial.log"), "-serial", "chardev:serial",
                  // Without a folder, as it runs in it: a socket's address is short.
                  "-qmp", std::string("unix:") + qmp_socket_name + ",server=on,wait=off", "-pidfile",
                  (folder / "qemu.pid").string(),
                  // `spawn` and `elevateprivileges` would be welcome too, but refuse the fork and setsid of -daemonize.
                  "-sandbox", "on,obsolete=deny,resourcecontrol=deny"});
    if (record.has_kernel)
        words.insert(words.end(), {"-kernel", (folder / "vmlinuz").string(), "-initrd",
                                   (folder / "initrd.img").string(), "-append", kernel_words(accelerator)});
    return words;
}

bool contains(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

Error launch_error(const Finished& finished, const fs::path& folder) {
    if (finished.timed_out)
        return Error{Error::Kind::internal,
                     "QEMU did not start within " + std::to_string(launch_limit_ms / 1000) + " s"};
    Error error{Error::Kind::internal, "QEMU cannot run the machine: " + last_line(finished.output)};
    if (contains(finished.output, "Cannot allocate memory") || contains(finished.output, "cannot set up guest memory"))
        error.hint = "choose a smaller size, or free some memory on this host";
    if (contains(finished.output, "No such file"))
        error.hint = "a file of the machine is lost from " + folder.string() + ": `tnr delete " +
                     folder.filename().string() + "`, then start it anew";
    return error;
}

}  // namespace

Result<int> free_port() {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
        return Error{Error::Kind::internal, std::string("no free port on 127.0.0.1: ") + std::strerror(errno)};
    return ntohs(address.sin_port);
}

Result<int> start_qemu(const fs::path& folder, const Record& record, Accelerator accelerator) {
    if (auto tool = find_tool("qemu-system-x86_64", "qemu-system-x86"); !tool) return tool.error();
    int port = record.ssh_port;
    for (int attempt = 1;; ++attempt) {
        if (port == 0) {
            auto chosen = free_port();
            if (!chosen) return chosen.error();
            port = *chosen;
        }
        auto finished = run({.argv = command_line(folder, record, accelerator, port),
                             .folder = folder,
                             .limit_ms = launch_limit_ms,
                             .to_the_end = true});  // once it has daemonized we could not take it back
        if (!finished) return finished.error();
        if (!finished->timed_out && finished->exit_code == 0) return port;
        // What we killed may have had a daemon of its own by then.
        if (auto half_started = find_qemu(folder / "qemu.pid"); half_started && finished->timed_out)
            kill_process(*half_started);
        const bool port_taken = contains(finished->output, "host forwarding rule");
        // The last QEMU of this machine has ended for whoever asks, but the kernel is still closing its files.
        const bool disk_held = contains(finished->output, "Failed to get \"write\" lock");
        if (attempt == launch_attempts || (!port_taken && !disk_held)) return launch_error(*finished, folder);
        if (port_taken) port = 0;
        if (disk_held) std::this_thread::sleep_for(between_attempts);
    }
}

}  // namespace tnr::local
