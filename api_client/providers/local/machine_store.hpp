// The state folder of the provider `local`: one folder per machine, and nothing outside it.
//
//   machine.json   what was ordered, and the SSH port     vmlinuz, initrd.img   hard links into the image cache
//   disk.qcow2     the machine's disk, above base.qcow2   seed.img              its user data (secret)
//   qemu.pid, qmp.sock, serial.log                        of the QEMU that runs it, or ran it last
//
// A machine's folder is filled under another name and appears by renaming, disappears by renaming: whoever is
// killed half way leaves a machine or none. Whoever changes a machine holds its lock.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::local {

// machine.json
struct Record {
    std::string name = {};
    std::string instance_id = {};
    std::string user = {};
    int cpus = 0;
    int memory_mib = 0;
    int ssh_port = 0;
    bool has_kernel = false;  // booted directly, not by the disk's boot loader
};

class MachineStore {
public:
    explicit MachineStore(std::filesystem::path root);  // made when it is not there

    std::filesystem::path folder(const std::string& name) const { return root_ / name; }
    std::filesystem::path pid_file(const std::string& name) const { return folder(name) / "qemu.pid"; }

    // Held while a machine is made, started, stopped or destroyed. The file goes with the machine.
    Result<UniqueFd> lock(const std::string& name) const;
    void forget_lock(const std::string& name) const;

    bool exists(const std::string& name) const;
    std::vector<std::string> names() const;
    // A folder without a readable record is an Error of kind internal: something of ours is there, and broken.
    Result<Record> read(const std::string& name) const;
    Result<> write(const std::filesystem::path& folder, const Record& record) const;

    // An empty folder to fill; `publish` makes it the machine's, `remove` takes the machine or what there is of it.
    Result<std::filesystem::path> begin(const std::string& name) const;
    Result<> publish(const std::string& name) const;
    Result<> remove(const std::string& name) const;

private:
    std::filesystem::path unborn(const std::string& name) const { return root_ / (".new-" + name); }
    std::filesystem::path dead(const std::string& name) const { return root_ / (".gone-" + name); }
    std::filesystem::path lock_path(const std::string& name) const { return root_ / (".lock-" + name); }

    std::filesystem::path root_;  // canonical, so that QEMU's command line says the same however we got here
};

}  // namespace tnr::local
