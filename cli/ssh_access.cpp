// MachineAccess over SSH: the one that users get.
#include <sstream>

#include "cli/install/install.hpp"
#include "cli/machine_access.hpp"
#include "cli/ssh/exec.hpp"
#include "cli/target.hpp"

namespace tnr::cli {
namespace {

// From power-on to sshd: about 30 s under emulation, several minutes in a slow cloud.
constexpr std::chrono::minutes boot_limit{10};
// The first CUDA call of a machine waits for a claim in the pool.
constexpr std::chrono::minutes proof_limit{2};

// Lines of tnr-gpu-probe --plain: a GPU's memory in bytes, its name.
std::vector<SeenGpu> parse_gpus(const std::string& text) {
    std::vector<SeenGpu> gpus;
    std::istringstream lines{text};
    SeenGpu gpu;
    while (lines >> gpu.memory_bytes && std::getline(lines >> std::ws, gpu.name)) gpus.push_back(gpu);
    return gpus;
}

class SshAccess : public MachineAccess {
public:
    explicit SshAccess(std::string key_path) : key_path_(std::move(key_path)) {}

    Result<> get_in(const Machine& machine, const Record& record, const Waiting& waiting) override {
        auto target = ssh_target(machine, record, key_path_);
        if (!target) return target.error();
        auto patience = record.step >= Step::installed ? ssh::auth_patience_known : ssh::auth_patience_new;
        auto client = ssh::connect_when_ready(
            *target, ssh::Clock::now() + boot_limit,
            [&](const Error& error) {
                return waiting(error.kind == Error::Kind::auth
                                   ? "it refuses authentication; its user may not be there yet"
                                   : "it is booting");
            },
            patience);
        if (!client) return client.error();
        client_ = std::move(*client);
        return Ok{};
    }

    Result<std::vector<std::string>> install(const GpuConfig& config, const Say& say) override {
        auto embedded = install::embedded_files();
        std::string text = to_json_text(config);
        return install::install(*client_, install::files_to_install(embedded, text), say);
    }

    Result<Proof> prove() override {
        auto output =
            ssh::capture(*client_, "/usr/local/lib/tnr/tnr-gpu-probe --plain", "", ssh::Clock::now() + proof_limit);
        if (!output) return output.error();
        if (output->code == 0) return Proof{parse_gpus(output->out), output->err.substr(0, output->err.find('\n'))};
        std::string words = output->err.empty() ? "it finds no GPU" : output->err;
        while (!words.empty() && words.back() == '\n') words.pop_back();
        return Error{Error::Kind::remote,
                     "a CUDA program on '" + client_->target().name + "' does not get its GPU: " + words,
                     "can the machine reach the pool? See what it says: `tnr connect " + client_->target().name +
                         " -- env TNR_LOG=debug /usr/local/lib/tnr/tnr-gpu-probe`"};
    }

private:
    std::string key_path_;
    std::unique_ptr<ssh::Client> client_;
};

}  // namespace

Result<ssh::KeyPair> login_key(const Record& record, const std::string& key_path) {
    auto key = ssh::load_key(key_path);
    std::string anew = "`tnr delete " + record.name + "` and `tnr start " + record.name + "` make it anew";
    if (!key && key.error().kind == Error::Kind::not_found)
        return Error{
            Error::Kind::auth,
            "this computer's SSH key " + key_path + " is lost, so '" + record.name + "' would refuse authentication",
            "put that file back; without it " + anew};
    if (!key || record.login_key.empty() || record.login_key == ssh::public_line(*key, "")) return key;
    auto wanted = ssh::blob_of_line(record.login_key);
    return Error{Error::Kind::auth,
                 "the SSH key " + key_path + " is not the one that '" + record.name + "' was made with (" +
                     ssh::fingerprint(ssh::public_blob(*key)) + ", not " +
                     (wanted ? ssh::fingerprint(*wanted) : record.login_key) + "), so authentication would fail",
                 "put the right file back; without it " + anew};
}

Result<ssh::Target> ssh_target(const Machine& machine, const Record& record, const std::string& key_path) {
    auto key = login_key(record, key_path);
    if (!key) return key.error();
    if (machine.address.empty())
        return Error{Error::Kind::remote, "'" + record.name + "' has no address yet", "try again in a moment"};
    return ssh::Target{record.name,      machine.address,
                       machine.ssh_port, machine.user.empty() ? login_user : machine.user,
                       record.host_key,  *key};
}

std::unique_ptr<MachineAccess> ssh_access(const std::string& key_path) {
    return std::make_unique<SshAccess>(key_path);
}

}  // namespace tnr::cli
