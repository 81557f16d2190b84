// MachineAccess over SSH: the one that users get.
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

class SshAccess : public MachineAccess {
public:
    explicit SshAccess(std::string key_path) : key_path_(std::move(key_path)) {}

    Result<> get_in(const Machine& machine, const Record& record, const Waiting& waiting) override {
        auto target = ssh_target(machine, record, key_path_);
        if (!target) return target.error();
        auto client = ssh::connect_when_ready(*target, ssh::Clock::now() + boot_limit, [&](const Error& error) {
            return waiting(error.kind == Error::Kind::auth ? "it is up, our user is not there yet" : "it is booting");
        });
        if (!client) return client.error();
        client_ = std::move(*client);
        return Ok{};
    }

    Result<std::vector<std::string>> install(const GpuConfig& config, const Say& say) override {
        auto embedded = install::embedded_files();
        std::string text = to_json_text(config);
        return install::install(*client_, install::files_to_install(embedded, text), say);
    }

    Result<std::string> prove() override {
        auto output = ssh::capture(*client_, "/usr/local/lib/tnr/tnr-gpu-probe", "", ssh::Clock::now() + proof_limit);
        if (!output) return output.error();
        if (output->code == 0) return output->out;
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

Result<ssh::Target> ssh_target(const Machine& machine, const Record& record, const std::string& key_path) {
    auto key = ssh::load_or_create_key(key_path, "tnr");
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
