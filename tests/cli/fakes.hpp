// A small world in memory for commands: a cloud, a pool, machines one can get into. Each can be told to fail once at a
// step, and to have the user press Ctrl-C there.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "api_client/base/mutex.hpp"
#include "cli/command_line.hpp"
#include "cli/commands/start.hpp"
#include "cli/session.hpp"
#include "tests/cli/schema.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

namespace tnr::test {

struct FakeWorld {
    // The cloud.
    std::map<std::string, Machine> machines;  // by id
    bool stops_to_be_deleted = false;         // it is shown stopping once, then no more
    int created = 0;
    std::vector<std::string> destroyed;  // ids, whether there was one or not
    std::optional<Error> machine_error;  // what the cloud says instead of a machine
    std::string address = "192.0.2.7";
    int ssh_port = 22;
    Order last_order;
    double price = 0.25;
    std::optional<Costs> costs;  // what it says has been spent; nothing: it does not tell
    std::vector<Snapshot> snapshots;
    std::vector<Leftover> leftovers;  // of whichever machine is asked for
    std::vector<int> open_ports;
    bool has_firewall = true;
    // The pool.
    std::vector<cli::GpuType> types = {{"h100", 2, 2, 80'000'000'000}, {"a100", 1, 1, 40'000'000'000}};
    std::map<std::string, std::string> enrolled;  // machine to key
    std::string pool_role = "account";
    std::optional<int64_t> pool_time = {};
    std::string pool_identity;
    bool pool_operator = false;
    std::string redeemed;                    // the key that a token was traded for
    std::function<void()> on_redeemed = {};  // once it is
    std::vector<cli::GpuClaim> claims;
    bool pool_reachable = true;
    std::optional<Error> pool_says;  // in place of every answer
    cli::PoolNow now;
    cli::PoolBooks books;
    bool old_pool = false;  // of before pools told of their ledgers
    // What is on the machine that runs.
    std::string installed;  // the text of gpu.json
    int installs = 0, proofs = 0;
    std::string timers;
    std::vector<std::string> told;             // machines whose timers were changed while they ran
    std::map<std::string, int64_t> idle = {};  // of machines by name; others do not answer
    std::vector<std::string> scripts;          // those that ran
    int script_code = 0;                       // of the next one
    // Where the next thing goes wrong: "create", "created" (after the cloud has made it), "get_in", "install", "prove",
    // "redeemed" (after the pool has taken a token).
    std::string fails_at, interrupted_at;
    int tries_in_vain = 0;  // before it can be got in
    bool dies_while_booting = false;
    std::optional<Error> machine_error_while_booting;

    Result<> pass(const std::string& step) {
        if (interrupted_at == step) {
            interrupted_at.clear();
            interrupt::raise_for_test();
            return interrupt::error();
        }
        if (fails_at != step) return Ok{};
        fails_at.clear();
        return Error{Error::Kind::network, "the fake fails at " + step};
    }
};

// Where those wait for each other that are to be asked side by side; asked one after the other, they give up.
class Meeting {
public:
    explicit Meeting(int expected) : expected_(expected) {}
    Result<> wait_for_all() {
        UniqueLock lock(mutex_);
        ++here_;
        all_here_.notify_all();
        auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (here_ < expected_)
            if (all_here_.wait_until(mutex_, limit) == std::cv_status::timeout)
                return Error{Error::Kind::network, "the others were not asked meanwhile"};
        return Ok{};
    }

private:
    Mutex mutex_;
    Condition all_here_;
    const int expected_;
    int here_ TNR_GUARDED_BY(mutex_) = 0;
};

class FakeProvider : public Provider {
public:
    explicit FakeProvider(FakeWorld& world) : world_(world) {}
    std::string name() const override { return "local"; }
    std::string pool_host() const override { return "10.0.2.2"; }
    Result<std::string> whoami() override { return std::string("nobody"); }
    Result<std::vector<Offer>> offers() override {
        return std::vector<Offer>{
            {.name = "small", .cpus = 2, .memory_mib = 2048, .disk_gib = 20, .price = price(1)},
            {.name = "large", .cpus = 8, .memory_mib = 8192, .disk_gib = 80, .price = price(4)},
            {.name = "medium", .region = "far", .cpus = 2, .memory_mib = 4096, .disk_gib = 20, .price = price(2)},
            {.name = "medium", .region = "near", .cpus = 2, .memory_mib = 4096, .disk_gib = 20, .price = price(3)}};
    }

    Result<Machine> create(const Order& order) override {
        if (auto passed = world_.pass("create"); !passed) return passed.error();
        for (auto& [id, machine] : world_.machines)
            if (machine.name == order.name) return Error{Error::Kind::usage, "the name " + order.name + " is taken"};
        Machine machine;
        machine.id = "i-" + std::to_string(++world_.created);
        machine.name = order.name;
        machine.state = MachineState::starting;
        machine.price = price(1);
        machine.region = order.region;
        world_.machines[machine.id] = machine;
        world_.last_order = order;
        if (auto passed = world_.pass("created"); !passed) return passed.error();
        return machine;
    }
    // A machine that starts is seen starting once, then running.
    Result<Machine> machine(const std::string& id) override {
        if (world_.machine_error) return *world_.machine_error;
        auto found = world_.machines.find(id);
        if (found == world_.machines.end()) return Error{Error::Kind::not_found, "no machine " + id};
        Machine now = found->second;
        if (now.state == MachineState::starting) found->second.state = MachineState::running;
        if (now.state == MachineState::stopping) found->second.state = MachineState::stopped;
        found->second.address = world_.address;
        found->second.ssh_port = world_.ssh_port;
        if (now.state == MachineState::stopping && world_.stops_to_be_deleted) world_.machines.erase(found);
        return now;
    }
    Result<std::vector<Machine>> machines() override {
        if (world_.machine_error && world_.machine_error->kind == Error::Kind::network) return *world_.machine_error;
        std::vector<Machine> all;
        for (auto& [id, machine] : world_.machines) all.push_back(machine);
        return all;
    }
    Result<> stop(const std::string& id) override { return set(id, MachineState::stopped); }
    Result<> start(const std::string& id) override { return set(id, MachineState::starting); }
    Result<Costs> costs() override {
        if (world_.costs) return *world_.costs;
        return Provider::costs();
    }
    Result<> destroy(const std::string& id) override {
        world_.destroyed.push_back(id);
        world_.machines.erase(id);
        return Ok{};
    }

    Result<std::vector<Leftover>> leftovers(const std::string&) override { return world_.leftovers; }
    Result<> remove_leftover(const Leftover& leftover) override {
        std::erase_if(world_.leftovers, [&](const Leftover& each) { return each.id == leftover.id; });
        return Ok{};
    }

    Result<> resize(const std::string& id, const std::string& offer) override {
        if (world_.machines.at(id).state != MachineState::stopped) return Error{Error::Kind::usage, "the machine runs"};
        if (auto passed = world_.pass("resize"); !passed) return passed;
        world_.machines.at(id).offer = offer;
        return Ok{};
    }
    Result<> snapshot(const std::string& id, const std::string& name) override {
        world_.snapshots.push_back({.id = "s-" + std::to_string(++world_.created),
                                    .name = name,
                                    .size_gib = 2,
                                    .created = "2026-01-02T03:00:00Z",
                                    .currency = "USD",
                                    .per_month = 0.1});
        world_.machines.at(id);
        return Ok{};
    }
    // One that is being made is ready when it is looked at for the second time.
    Result<std::vector<Snapshot>> snapshots() override {
        auto seen = world_.snapshots;
        for (auto& snapshot : world_.snapshots) snapshot.ready = true;
        return seen;
    }
    Result<> delete_snapshot(const std::string& id) override {
        std::erase_if(world_.snapshots, [&](const Snapshot& each) { return each.id == id; });
        return Ok{};
    }
    Result<> open_ports(const std::string& id, const std::vector<int>& ports) override {
        if (!world_.has_firewall) return Provider::open_ports(id, ports);
        world_.open_ports = ports;
        return Ok{};
    }

private:
    Price price(double times) const {
        return {.currency = "USD", .machine = times * world_.price, .disk = 0, .address = 0};
    }
    Result<> set(const std::string& id, MachineState state) {
        world_.machines.at(id).state = state;
        return Ok{};
    }
    FakeWorld& world_;
};

class FakePool : public cli::Pool {
public:
    explicit FakePool(FakeWorld& world) : world_(world) {}
    Result<cli::PoolHello> hello() override {
        return reached(cli::PoolHello{world_.pool_role, world_.pool_time, world_.pool_identity});
    }
    Result<> redeem_token(const std::string& key) override {
        if (!world_.redeemed.empty() && world_.redeemed != key)
            return Error{Error::Kind::auth, "this token has been used already"};
        if (world_.pool_reachable) world_.redeemed = key;
        if (world_.on_redeemed) world_.on_redeemed();
        if (auto passed = world_.pass("redeemed"); !passed) return passed;
        return reached(Ok{});
    }
    Result<std::vector<cli::GpuType>> types() override { return reached(world_.types); }
    Result<std::vector<cli::GpuClaim>> claims() override { return reached(world_.claims); }
    Result<cli::PoolBooks> books(int64_t since, bool everyone, const std::vector<int64_t>&) override {
        if (everyone && !world_.pool_operator)
            return Error{Error::Kind::auth, "only an operator may ask for everybody's"};
        if (world_.old_pool) return Error{Error::Kind::usage, "there is no operation '\"ledger\"'"};
        if (since < 0) return Error{Error::Kind::usage, "'since' is no time"};  // as a pool says
        auto books = world_.books;
        std::erase_if(books.uses, [&](const cli::GpuUse& use) {
            return use.to_ms <= since * 1000 || (!everyone && !use.user.empty());
        });
        return reached(books);
    }
    Result<cli::PoolNow> now() override { return reached(world_.now); }
    Result<> enroll_machine(const std::string& name, const std::string& key) override {
        if (world_.pool_reachable) world_.enrolled[name] = key;
        return reached(Ok{});
    }
    Result<> forget_machine(const std::string& name) override {
        if (world_.pool_reachable) world_.enrolled.erase(name);
        return reached(Ok{});
    }

private:
    template <class T>
    Result<T> reached(T answer) {
        if (world_.pool_says) return *world_.pool_says;
        if (world_.pool_reachable) return answer;
        return Error{Error::Kind::network, "no answer from the pool at tcp://127.0.0.1:14900", "check that it runs"};
    }
    FakeWorld& world_;
};

class FakeAccess : public cli::MachineAccess {
public:
    explicit FakeAccess(FakeWorld& world) : world_(world) {}
    Result<> get_in(const Machine& machine, const cli::Record& record, const cli::Waiting& waiting) override {
        if (machine.state != MachineState::running || machine.address.empty())
            return Error{Error::Kind::internal, "get_in came before the machine ran"};
        host_key_ = record.host_key;
        if (world_.last_order.user_data.find(host_key_) == std::string::npos)
            return Error{Error::Kind::remote, "another host key"};
        auto before = std::exchange(world_.machine_error, world_.machine_error_while_booting);
        if (world_.dies_while_booting) world_.machines.at(machine.id).state = MachineState::stopped;
        for (int tries = 0; tries < world_.tries_in_vain; ++tries)
            if (auto go_on = waiting("it is booting"); !go_on) return go_on;
        world_.machine_error = before;
        return world_.pass("get_in");
    }
    Result<std::vector<std::string>> install(const GpuConfig& config, const cli::Say&) override {
        if (auto passed = world_.pass("install"); !passed) return passed.error();
        ++world_.installs;
        world_.installed = to_json_text(config);
        return std::vector<std::string>{"gpu.json"};
    }
    Result<> configure(const std::string& text) override {
        if (auto passed = world_.pass("configure"); !passed) return passed.error();
        world_.installed = text;
        return Ok{};
    }
    Result<std::optional<int64_t>> idle_for(const Machine& machine, const cli::Record&) override {
        if (!world_.idle.contains(machine.name)) return Error{Error::Kind::network, "it does not answer"};
        return std::optional<int64_t>{world_.idle.at(machine.name)};
    }
    Result<cli::Proof> prove() override {
        if (auto passed = world_.pass("prove"); !passed) return passed.error();
        ++world_.proofs;
        return cli::Proof{{{"NVIDIA H100", uint64_t{80} << 30}}};
    }

    Result<> install_timers(const std::string& config, const cli::Say&) override {
        if (auto passed = world_.pass("timers"); !passed) return passed.error();
        world_.timers = config;
        return Ok{};
    }
    Result<> change_timers(const Machine& machine, const cli::Record&, const std::string& config) override {
        if (auto passed = world_.pass("change_timers"); !passed) return passed;
        world_.told.push_back(machine.name);
        world_.timers = config;
        return Ok{};
    }
    Result<int> run_script(const std::string& script, const cli::Say& line) override {
        if (auto passed = world_.pass("setup"); !passed) return passed.error();
        world_.scripts.push_back(script);
        line("it says something");
        return std::exchange(world_.script_code, 0);
    }

private:
    FakeWorld& world_;
    std::string host_key_;
};

// A Session in that world, with folders of its own, signed in to a pool on loopback.
struct FakeSession {
    TemporaryFolder folder;
    FakeWorld world;
    std::ostringstream out, err;
    std::istringstream in;
    cli::Session session{out, err, in};

    FakeSession() {
        session.config_folder = folder / "config";
        session.state_folder = folder / "state";
        session.cache_folder = folder / "cache";
        session.provider_names = {"local"};
        session.provider = [this](const std::string& name) -> Result<std::unique_ptr<Provider>> {
            if (name != "local") return Error{Error::Kind::usage, "no provider " + name};
            return std::unique_ptr<Provider>(std::make_unique<FakeProvider>(world));
        };
        session.pool = [this](const cli::PoolLogin&) -> Result<std::unique_ptr<cli::Pool>> {
            return std::unique_ptr<cli::Pool>(std::make_unique<FakePool>(world));
        };
        session.access = [this] { return std::make_unique<FakeAccess>(world); };
        session.now = [] { return "2026-01-02T03:04:05Z"; };
        session.pause = [](int) { return !interrupt::interrupted(); };
        auto server = wire::make_key_pair(), own = wire::make_key_pair();
        (void)session.logins().save({"tcp://127.0.0.1:14900", {server.public_key, own}});
    }
    ~FakeSession() { interrupt::clear_for_test(); }
    // A machine that `tnr start demo` has brought up.
    void start_demo(const std::string& name = "demo") {
        REQUIRE(cli::start(session, {.name = name, .gpu = "h100"}));
        said();
    }
    // From now on 'demo' is this server, and its owner's key is ours.
    void put_demo_at(const Sshd& sshd) {
        auto target = sshd.target();
        auto record = **session.records().find("demo");
        record.host_key = target.host_key;
        record.login_key.clear();
        REQUIRE(session.records().save(record));
        REQUIRE(write_file(session.config_folder + "/keys/demo", ssh::private_file(target.key, "")));
        auto& machine = world.machines.at(record.id);
        machine.address = world.address = target.host;
        machine.ssh_port = world.ssh_port = target.port;
        machine.user = target.user;
    }
    // A whole command line; what it said is in out and err.
    int tnr(const std::vector<std::string>& words) {
        out.str(""), err.str("");
        session.json = session.yaml = session.explain = false;
        session.exit_code = cli::exit_done;
        session.result = Ok{};
        return cli::run_command_line(session, words);
    }
    // What a command line prints with --json, which must be of the schema, and have no errors where tnr ends with 0.
    nlohmann::json document(std::vector<std::string> words) {
        static const Schema schema;
        words.insert(words.begin(), "--json");
        const int code = tnr(words);
        INFO(out.str() << err.str());
        auto document = nlohmann::json::parse(out.str());
        CHECK(schema.complaint(document) == "");
        CHECK((code != 0 || document["errors"].empty()));
        return document;
    }
    std::string said() {
        std::string text = out.str();
        out.str("");
        return text;
    }
};

}  // namespace tnr::test
