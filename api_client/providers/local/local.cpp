// Orders into folders and processes, and back.
#include "api_client/providers/local/local.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "api_client/base/machine_name.hpp"
#include "api_client/base/paths.hpp"
#include "api_client/cloud.hpp"
#include "api_client/providers/local/child.hpp"
#include "api_client/providers/local/kvm_probe.hpp"
#include "api_client/providers/local/process.hpp"
#include "api_client/providers/local/qmp.hpp"
#include "api_client/providers/local/seed.hpp"

namespace tnr::local {
namespace {

namespace fs = std::filesystem;

// A guest under emulation shuts down in about 5 s, one that is still booting first has to finish that (20 s).
constexpr int stop_limit_ms = 60'000;
// How often the button is pressed: a guest that is still booting does not hear it.
constexpr int press_again_ms = 3'000;
constexpr int deaf_after_ms = 2 * press_again_ms;  // from then on it is also told in another way
constexpr int quit_limit_ms = 10'000;              // QEMU writes back what its disk cache holds

// The disk is sparse: it takes from the host what the guest has written.
const std::vector<Offer> sizes = {
    {.name = "small", .cpus = 2, .memory_mib = 1024, .disk_gib = 20, .price = free_of_charge()},
    {.name = "medium", .cpus = 4, .memory_mib = 4096, .disk_gib = 40, .price = free_of_charge()},
    {.name = "large", .cpus = 8, .memory_mib = 16384, .disk_gib = 80, .price = free_of_charge()},
};

Result<Offer> find_offer(const std::string& name) {
    if (name.empty()) return sizes.front();
    std::string known;
    for (const Offer& offer : sizes) {
        if (offer.name == name) return offer;
        known += (known.empty() ? "" : ", ") + offer.name;
    }
    return Error{Error::Kind::usage, "there is no size '" + name + "'", "sizes of local machines: " + known};
}

Error no_such_machine(const std::string& name) {
    return Error{Error::Kind::not_found, "machine '" + name + "' does not exist", "run `tnr status` to see yours"};
}

// Tells this machine's first boot from that of an earlier one of the same name.
std::string new_instance_id(const std::string& name) {
    std::random_device random;
    return name + "-" + std::to_string(random()) + std::to_string(random());
}

// Linux hears the power button once udev has loaded its driver and logind runs, late in a boot; Ctrl-Alt-Del it hears from
// the first second on, and whatever is first there then, systemd or the bare kernel, ends in order and reboots. The reboot
// is made the machine's end.
void press_ctrl_alt_del(const fs::path& folder) {
    if (!qmp_command(folder, "set-action", R"({"reboot": "shutdown"})")) return;
    (void)qmp_command(folder, "send-key",
                      R"({"keys": [{"type": "qcode", "data": "ctrl"}, {"type": "qcode", "data": "alt"},)"
                      R"({"type": "qcode", "data": "delete"}]})");
}

// An Error is the user's Ctrl-C: the guest may still be ending.
Result<> shut_down(const fs::path& folder, const Process& process) {
    for (int waited_ms = 0; waited_ms < stop_limit_ms; waited_ms += press_again_ms) {
        // An Error here is a QEMU that is ending or hangs; waiting and, in the end, killing settles both.
        (void)qmp_command(folder, "system_powerdown");
        if (waited_ms >= deaf_after_ms) press_ctrl_alt_del(folder);
        if (wait_for_end(process, press_again_ms, interrupt::fd())) return Ok{};
        if (interrupt::interrupted()) return interrupt::error();
    }
    (void)qmp_command(folder, "quit");
    (void)wait_for_end(process, quit_limit_ms);
    return Ok{};
}

Error will_not_die(const std::string& name, const Process& process) {
    return Error{Error::Kind::internal,
                 "machine '" + name + "' (process " + std::to_string(process.pid) + ") cannot be ended",
                 "its disk may hang; look at the kernel's log with `dmesg`"};
}

}  // namespace

Result<std::string> LocalProvider::whoami() {
    return std::string("this computer");
}

std::string LocalProvider::pool_host() const {
    return host_loopback_in_guest;
}

Result<std::vector<Offer>> LocalProvider::offers() {
    return sizes;
}

Result<> LocalProvider::fill(const fs::path& folder, const Order& order, const Offer& offer, const Image& image) const {
    const Record record{.name = order.name,
                        .instance_id = new_instance_id(order.name),
                        .user = order.user,
                        .cpus = offer.cpus,
                        .memory_mib = offer.memory_mib,
                        .has_kernel = !image.kernel.empty()};
    auto seed = seed_image(order.name, record.instance_id, order.user_data);
    if (!seed) return seed.error();
    if (auto written = write_file(folder / "seed.img", *seed); !written) return written;
    if (auto installed = install(image, folder, offer.disk_gib); !installed) return installed;
    return store_.write(folder, record);
}

Result<> LocalProvider::check(const Order& order) {
    if (auto valid = check_machine_name(order.name); !valid) return valid;
    if (auto offer = find_offer(order.offer); !offer) return offer.error();
    if (!order.region.empty())
        return Error{Error::Kind::usage,
                     "there is no region '" + order.region + "': local machines run on this computer"};
    if (auto tool = find_tool("qemu-system-x86_64", "qemu-system-x86 qemu-utils"); !tool) return tool.error();
    if (auto tool = find_tool("qemu-img", "qemu-utils"); !tool) return tool.error();
    if (order.image.empty()) return Ok{};
    if (auto image = image_of(order.image); !image) return image.error();
    return Ok{};
}

Result<Image> LocalProvider::image_of(const std::string& image) const {
    return image_at(snapshots_.image(image).value_or(image));
}

Result<Machine> LocalProvider::create(const Order& order) {
    // Before the image is built, which takes a minute.
    if (auto possible = check(order); !possible) return possible.error();
    auto offer = find_offer(order.offer);
    if (!offer) return offer.error();
    if (order.user_data.size() > user_data_bytes_max) return seed_image(order.name, "", order.user_data).error();
    const Error taken{Error::Kind::usage, "machine '" + order.name + "' already exists",
                      "choose another name, or remove it with `tnr delete " + order.name + "`"};
    if (store_.exists(order.name)) return taken;
    auto image = order.image.empty() ? default_image(cache_, order.on_step) : image_of(order.image);
    if (!image) return image.error();

    auto lock = store_.lock(order.name);
    if (!lock) return lock.error();
    if (store_.exists(order.name)) return taken;
    // Its folder was deleted behind our back, and its disk with it: nothing of use runs there.
    if (auto orphan = find_qemu(store_.pid_file(order.name)); orphan && !kill_process(*orphan))
        return will_not_die(order.name, *orphan);

    auto made = [&]() -> Result<> {
        auto folder = store_.begin(order.name);
        if (!folder) return folder.error();
        if (auto filled = fill(*folder, order, *offer, *image); !filled) return filled;
        if (auto published = store_.publish(order.name); !published) return published;
        return launch(order.name, order.on_step);
    }();
    if (!made) {
        (void)store_.remove(order.name);  // nothing of it ran; what the first error says matters more
        store_.forget_lock(order.name);
        return made.error();
    }
    return machine(order.name);
}

// With the machine's lock held, and no QEMU of it running.
Result<> LocalProvider::launch(const std::string& name, const OnStep& on_step) {
    auto record = store_.read(name);
    if (!record) return record.error();
    const fs::path folder = store_.folder(name);
    // A disk that boots by itself has no kernel we could probe with; ours will do if it has been built.
    const fs::path kernel = record->has_kernel ? folder / "vmlinuz" : cached_kernel(cache_);
    if (on_step) on_step("looking for KVM");
    const bool kvm = !kernel.empty() && kvm_works(kernel, cache_ / kvm_answer_file);
    if (interrupt::interrupted()) return interrupt::error();
    if (on_step) on_step(kvm ? "starting the machine under KVM" : "starting the machine under emulation");
    auto port = start_qemu(folder, *record, kvm ? Accelerator::kvm : Accelerator::emulation);
    if (!port) return port.error();
    if (*port == record->ssh_port) return Ok{};
    record->ssh_port = *port;
    auto written = store_.write(folder, *record);
    // A machine that runs where nobody can find its port would be lost.
    if (auto process = find_qemu(store_.pid_file(name)); !written && process) (void)kill_process(*process);
    return written;
}

Machine LocalProvider::describe(const Record& record) const {
    Machine machine{.id = record.name, .name = record.name};
    const bool runs = find_qemu(store_.pid_file(record.name)).has_value();
    machine.state = runs ? MachineState::running : MachineState::stopped;
    if (runs) machine.address = "127.0.0.1";
    machine.ssh_port = record.ssh_port;
    machine.user = record.user;
    machine.price = free_of_charge();
    for (const Offer& offer : sizes)
        if (offer.cpus == record.cpus && offer.memory_mib == record.memory_mib) machine.offer = offer.name;
    return machine;
}

Result<Machine> LocalProvider::machine(const std::string& id) {
    if (!check_machine_name(id) || !store_.exists(id)) return no_such_machine(id);
    auto record = store_.read(id);
    if (!record) return record.error();
    return describe(*record);
}

Result<std::vector<Machine>> LocalProvider::machines() {
    std::vector<Machine> machines;
    for (const std::string& name : store_.names()) {
        auto record = store_.read(name);
        // A damaged one is shown too: it may run, it takes space, and destroy() can remove it.
        machines.push_back(describe(record ? *record : Record{.name = name}));
    }
    return machines;
}

Result<> LocalProvider::stop(const std::string& id) {
    if (!check_machine_name(id) || !store_.exists(id)) return no_such_machine(id);
    auto lock = store_.lock(id);
    if (!lock) return lock.error();
    auto process = find_qemu(store_.pid_file(id));
    if (!process) return Ok{};
    if (auto asked = shut_down(store_.folder(id), *process); !asked) return asked;
    if (!wait_for_end(*process, 0) && !kill_process(*process)) return will_not_die(id, *process);
    return Ok{};
}

Result<> LocalProvider::start(const std::string& id) {
    if (!check_machine_name(id) || !store_.exists(id)) return no_such_machine(id);
    auto lock = store_.lock(id);
    if (!lock) return lock.error();
    if (find_qemu(store_.pid_file(id))) return Ok{};
    return launch(id, {});
}

Result<> LocalProvider::destroy(const std::string& id) {
    if (auto valid = check_machine_name(id); !valid) return valid;  // also keeps "../.." from being removed
    auto lock = store_.lock(id);
    if (!lock) return lock.error();
    if (auto process = find_qemu(store_.pid_file(id)); process && !kill_process(*process))
        return will_not_die(id, *process);
    auto removed = store_.remove(id);
    if (removed) store_.forget_lock(id);
    return removed;
}

Result<> LocalProvider::resize(const std::string& id, const std::string& name) {
    auto offer = find_offer(name);
    if (!offer) return offer.error();
    auto lock = stopped_machine(id, "its size changes");
    if (!lock) return lock.error();
    auto record = store_.read(id);
    if (!record) return record.error();
    record->cpus = offer->cpus;
    record->memory_mib = offer->memory_mib;
    if (auto grown = grow_disk(store_.folder(id) / "disk.qcow2", offer->disk_gib); !grown) return grown;
    return store_.write(store_.folder(id), *record);
}

Result<> LocalProvider::snapshot(const std::string& id, const std::string& name) {
    auto lock = stopped_machine(id, "its disk is copied");
    if (!lock) return lock.error();
    return snapshots_.take(store_.folder(id), name);
}

Result<std::vector<Snapshot>> LocalProvider::snapshots() {
    return snapshots_.all();
}

Result<> LocalProvider::delete_snapshot(const std::string& id) {
    return snapshots_.remove(id);
}

// Its lock, held for what must not happen to a machine that runs.
Result<UniqueFd> LocalProvider::stopped_machine(const std::string& id, const std::string& what) const {
    if (!check_machine_name(id) || !store_.exists(id)) return no_such_machine(id);
    auto lock = store_.lock(id);
    if (!lock) return lock.error();
    if (find_qemu(store_.pid_file(id)))
        return Error{Error::Kind::usage, "machine '" + id + "' runs: it has to be stopped before " + what,
                     "`tnr stop " + id + "`, and afterwards `tnr start " + id + "`"};
    return lock;
}

}  // namespace tnr::local

namespace tnr {
extern const Cloud local_cloud;
const Cloud local_cloud = {
    .name = "local", .make = [](const Credentials&, const CloudWorld& world) {
        return std::unique_ptr<Provider>(new local::LocalProvider(state_dir() / "local", world.cache_folder));
    }};
}  // namespace tnr
