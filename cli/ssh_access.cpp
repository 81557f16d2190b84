// MachineAccess over SSH: the one that users get.
#include <optional>
#include <sstream>

#include "api_client/base/files.hpp"
#include "cli/install/install.hpp"
#include "cli/install/trouble.hpp"
#include "cli/logins.hpp"
#include "cli/machine_access.hpp"
#include "cli/ssh/exec.hpp"
#include "cli/target.hpp"
#include "cli/timers.hpp"

namespace tnr::cli {
namespace {

// From power-on to sshd: about 30 s under emulation, several minutes in a slow cloud.
constexpr std::chrono::minutes boot_limit{10};
// The first CUDA call of a machine waits for a claim in the pool.
constexpr std::chrono::minutes proof_limit{2};

constexpr std::chrono::minutes bring_limit{2};
constexpr std::chrono::seconds question_limit{5};
constexpr int still_runs_code = 99;

std::string own_key_path(const std::string& folder, const std::string& machine) {
    return folder + "/keys/" + machine;
}

ssh::Target target_with(const Machine& machine, const Record& record, const ssh::KeyPair& key) {
    return {record.name,      machine.address,
            machine.ssh_port, machine.user.empty() ? login_user : machine.user,
            record.host_key,  key};
}

// Lines of tnr-gpu-probe --plain: a GPU's memory in bytes, its name.
std::vector<SeenGpu> parse_gpus(const std::string& text) {
    std::vector<SeenGpu> gpus;
    std::istringstream lines{text};
    SeenGpu gpu;
    while (lines >> gpu.memory_bytes && std::getline(lines >> std::ws, gpu.name)) gpus.push_back(gpu);
    return gpus;
}

// The cloud's own driver answers; lines of MIB, NAME.
constexpr const char* own_gpus_question = "nvidia-smi --query-gpu=memory.total,name --format=csv,noheader,nounits";

std::vector<SeenGpu> parse_own_gpus(const std::string& text) {
    std::vector<SeenGpu> gpus;
    std::istringstream lines{text};
    char comma = 0;
    for (SeenGpu gpu; lines >> gpu.memory_bytes >> comma && comma == ',' && std::getline(lines >> std::ws, gpu.name);) {
        gpu.memory_bytes *= uint64_t{1} << 20;
        gpus.push_back(gpu);
    }
    return gpus;
}

class SshAccess : public MachineAccess {
public:
    explicit SshAccess(std::string folder) : folder_(std::move(folder)) {}

    Result<> get_in(const Machine& machine, const Record& record, const Waiting& waiting) override {
        auto target = ssh_target(machine, record, folder_);
        return target ? dial(*target, record, waiting) : Result<>{target.error()};
    }

    Result<std::string> meet(const Machine& machine, const Record& record, const Waiting& waiting) override {
        auto key = login_key(record, folder_);
        if (!key) return key.error();
        auto target = target_with(machine, record, *key);
        target.trust_first = true;
        if (auto in = dial(target, record, waiting); !in) return in.error();
        return client_->host_key();
    }

    Result<std::vector<std::string>> install(const GpuConfig& config, const Say& say) override {
        auto embedded = install::embedded_files();
        std::string text = to_json_text(config);
        pool_ = config.pool;
        return install::install(*client_, install::files_to_install(embedded, text), say);
    }

    Result<> configure(const std::string& config_text) override { return install::configure(*client_, config_text); }

    Result<Proof> prove() override {
        auto output =
            ssh::capture(*client_, "/usr/local/lib/tnr/tnr-gpu-probe --plain", "", ssh::Clock::now() + proof_limit);
        if (!output) return output.error();
        if (output->code == 0) return Proof{parse_gpus(output->out), output->err.substr(0, output->err.find('\n'))};
        if (auto unreachable = pool_out_of_reach()) return *unreachable;
        std::string words = output->err.empty() ? "it finds no GPU" : output->err;
        while (!words.empty() && words.back() == '\n') words.pop_back();
        return Error{Error::Kind::remote,
                     "a CUDA program on '" + client_->target().name + "' does not get its GPU: " + words,
                     "see what it says: `tnr connect " + client_->target().name +
                         " -- env TNR_LOG=debug /usr/local/lib/tnr/tnr-gpu-probe`"};
    }

    Result<> install_timers(const std::string& config, const Say& say) override {
        auto sent = install::install(*client_, install::timer_files(config), say);
        return sent ? Result<>{Ok{}} : Result<>{sent.error()};
    }

    Result<> change_timers(const Machine& machine, const Record& record, const std::string& config) override {
        auto client = connect_once(machine, record, ssh::Clock::now() + question_limit);
        if (!client) return client.error();
        client_ = std::move(*client);
        return install_timers(config, [](const std::string&) {});
    }

    Result<std::optional<int64_t>> idle_for(const Machine& machine, const Record& record) override {
        const auto deadline = ssh::Clock::now() + question_limit;
        auto client = connect_once(machine, record, deadline);
        if (!client) return client.error();
        auto said = ssh::capture(**client, "systemctl is-active -q tnr-idle && cat /run/tnr/idle", "", deadline);
        if (!said) return said.error();
        return said->code == 0 ? idle_told(said->out) : std::nullopt;
    }

    Result<int> run_script(const std::string& script, const Say& line) override {
        auto brought = ssh::capture(*client_,
                                    "umask 077 && mkdir -p ~/.cache/tnr && cat >~/.cache/tnr/setup && "
                                    "chmod 700 ~/.cache/tnr/setup",
                                    script, ssh::Clock::now() + bring_limit);
        if (!brought) return brought.error();
        if (brought->code != 0) return install::explained("bringing the script", brought->err, client_->target().name);
        // One that lost its connection may still run.
        std::string held = "cd && exec flock -o -n -E " + std::to_string(still_runs_code) +
                           " ~/.cache/tnr/setup.lock ~/.cache/tnr/setup";
        std::string begun;
        auto code = ssh::follow(*client_, held, [&](std::string_view piece) {
            begun += piece;
            for (size_t end; (end = begun.find('\n')) != std::string::npos; begun.erase(0, end + 1))
                line(begun.substr(0, end));
        });
        if (!begun.empty()) line(begun);
        if (code && *code == still_runs_code)
            return Error{Error::Kind::remote, "the script still runs on '" + client_->target().name + "' from before",
                         "wait until it has ended, or end it: `tnr connect " + client_->target().name +
                             " -- pkill -f .cache/tnr/setup`"};
        return code;
    }

    Result<Proof> prove_own() override {
        auto output = ssh::capture(*client_, own_gpus_question, "", ssh::Clock::now() + proof_limit);
        if (!output) return output.error();
        auto gpus = output->code == 0 ? parse_own_gpus(output->out) : std::vector<SeenGpu>{};
        if (!gpus.empty()) return Proof{gpus};
        std::string words = output->err.empty() ? output->out : output->err;
        words = words.substr(0, words.find('\n'));
        const std::string& name = client_->target().name;
        return Error{Error::Kind::remote,
                     "nvidia-smi on '" + name + "' shows no GPU" + (words.empty() ? "" : ": " + words),
                     "it may still be set up: see `tnr connect " + name + " -- nvidia-smi`"};
    }

private:
    Result<std::unique_ptr<ssh::Client>> connect_once(const Machine& machine, const Record& record,
                                                      ssh::Deadline deadline) const {
        auto target = ssh_target(machine, record, folder_);
        if (!target) return target.error();
        return ssh::Client::connect(*target, deadline);
    }

    Result<> dial(const ssh::Target& target, const Record& record, const Waiting& waiting) {
        auto patience = record.step >= Step::installed ? ssh::auth_patience_known : ssh::auth_patience_new;
        auto client = ssh::connect_when_ready(
            target, ssh::Clock::now() + boot_limit,
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

    // Asked when a program does not get its GPU: is it the way to the pool? Nothing when that is open, or cannot be told.
    std::optional<Error> pool_out_of_reach() {
        auto pool = parse_endpoint(pool_);
        if (!pool) return std::nullopt;
        std::string port = std::to_string(pool->port), host = pool->host;
        auto tried = ssh::capture(*client_,
                                  "command -v bash >/dev/null || exit 0; LC_ALL=C timeout 10 bash -c " +
                                      ssh::quoted(": </dev/tcp/" + host + "/" + port),
                                  "", ssh::Clock::now() + proof_limit);
        if (!tried || tried->code == 0) return std::nullopt;
        std::string why = "no answer in 10 s";
        for (const char* known : {"Connection refused", "No route to host", "Network is unreachable",
                                  "Name or service not known", "Temporary failure in name resolution"})
            if (tried->err.find(known) != std::string::npos) why = known;
        return Error{Error::Kind::network,
                     "'" + client_->target().name + "' cannot reach the pool at " + host + " port " + port + ": " + why,
                     "TCP port " + port + " of " + host + " must accept connections from " + client_->target().host +
                         ": see that the pool runs, and open the port in its host's firewall or security group\n"
                         "where machines reach the pool at another address, sign in with that: "
                         "`tnr login pool tcp://HOST:PORT …`"};
    }

    std::string folder_, pool_;
    std::unique_ptr<ssh::Client> client_;
};

}  // namespace

Result<std::string> MachineAccess::meet(const Machine&, const Record&, const Waiting&) {
    return Error{Error::Kind::internal, "this way into a machine trusts no host key that it has not planted"};
}

Result<Proof> MachineAccess::prove_own() {
    return Error{Error::Kind::internal, "this way into a machine does not ask for the cloud's own GPUs"};
}

Result<> MachineAccess::install_timers(const std::string&, const Say&) {
    return Error{Error::Kind::internal, "this way into a machine brings no timers"};
}

Result<> MachineAccess::change_timers(const Machine&, const Record&, const std::string&) {
    return Error{Error::Kind::internal, "this way into a machine changes no timers"};
}

Result<std::optional<int64_t>> MachineAccess::idle_for(const Machine&, const Record&) {
    return Error{Error::Kind::internal, "this way into a machine does not ask for its idle time"};
}

Result<int> MachineAccess::run_script(const std::string&, const Say&) {
    return Error{Error::Kind::internal, "this way into a machine runs no scripts"};
}

std::string login_key_path(const std::string& folder, const Record& record) {
    return record.own_key ? own_key_path(folder, record.name) : folder + "/ssh_key";
}

Result<ssh::KeyPair> login_key(const Record& record, const std::string& folder) {
    const std::string key_path = login_key_path(folder, record);
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

Result<ssh::KeyPair> make_login_key(Record& record, const std::string& folder) {
    record.own_key = true;
    auto key = ssh::load_or_create_key(login_key_path(folder, record), login_key_comment);
    if (key) record.login_key = ssh::public_line(*key, "");
    return key;
}

Result<> forget_login_key(const std::string& name, const std::string& folder) {
    const std::string path = own_key_path(folder, name);
    if (auto removed = remove_file(path + ".pub"); !removed) return removed;
    return remove_file(path);
}

Result<ssh::Target> ssh_target(const Machine& machine, const Record& record, const std::string& folder) {
    auto key = login_key(record, folder);
    if (!key) return key.error();
    if (machine.address.empty())
        return Error{Error::Kind::remote, "'" + record.name + "' has no address yet", "try again in a moment"};
    if (record.host_key.empty())
        return Error{Error::Kind::remote, "nobody has been on '" + record.name + "' yet, so its host key is not known",
                     "`tnr start " + record.name + "` continues"};
    return target_with(machine, record, *key);
}

std::unique_ptr<MachineAccess> ssh_access(const std::string& folder) {
    return std::make_unique<SshAccess>(folder);
}

}  // namespace tnr::cli
