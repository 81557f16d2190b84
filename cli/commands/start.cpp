// Each step looks at what is there and does what is missing, so running the command again is always right: it
// continues after a Ctrl-C, repairs a machine that lost a file, starts a stopped one, changes the GPU of a running one.
#include "cli/commands/start.hpp"

#include "api_client/offers.hpp"
#include "cli/interrupt.hpp"
#include "cli/json_out.hpp"
#include "cli/target.hpp"

namespace tnr::cli {
namespace {

constexpr int state_poll_ms = 1000;   // clouds count requests; nobody notices a second
constexpr int tries_per_look = 20;    // SSH is tried twice a second, or less often where a try takes long
constexpr int state_polls_max = 900;  // 15 minutes: the slowest cloud machine with room to spare

class Start {
public:
    Start(Session& session, const StartOptions& options) : session_(session), options_(options) {}

    Result<> run() {
        if (auto good = check_name(options_.name); !good) return good;
        auto lock = session_.records().lock(options_.name);
        if (!lock) return lock.error();
        if (auto known = learn(); !known) return known;
        if (options_.dry_run) return tell_plan();
        auto done = do_steps();
        return done ? report() : Result<>{with_what_exists(done.error())};
    }

private:
    // --- what is wanted, and whether it can be had: nothing is changed yet

    Result<> learn() {
        auto record = session_.records().find(options_.name);
        if (!record) return record.error();
        old_ = *record;
        if (old_) record_ = *old_;
        record_.name = options_.name;
        auto login = session_.logins().find(!options_.pool.empty() ? options_.pool : record_.pool);
        if (!login) return login.error();
        login_ = *login;
        auto pool = session_.pool(login_);
        if (!pool) return pool.error();
        pool_ = std::move(*pool);
        if (auto wished = learn_gpu(); !wished) return wished;
        return learn_provider();
    }

    Result<> learn_gpu() {
        std::string text =
            !options_.gpu.empty() || !old_ ? options_.gpu : old_->gpu + ":" + std::to_string(old_->count);
        auto wish = choose_gpu(*pool_, text);
        if (!wish) return wish.error();
        record_.gpu = wish->type;
        record_.count = wish->count;
        record_.pool = login_.address;
        return Ok{};
    }

    Result<> learn_provider() {
        std::string name = options_.provider;
        if (name.empty()) name = old_ ? old_->provider : "local";
        if (old_ && old_->step >= Step::ordered && old_->provider != name)
            return Error{Error::Kind::usage, "'" + options_.name + "' exists at provider " + old_->provider,
                         "delete it first, or choose another name"};
        record_.provider = name;
        auto provider = session_.provider(name);
        if (!provider) return provider.error();
        provider_ = std::move(*provider);
        if (provider_->brings_gpus())
            return Error{Error::Kind::usage,
                         "machines at " + name + " have GPUs of their own, which start cannot set up yet",
                         "make it there by other means; `tnr status` shows machines that carry our tag"};
        // Told before anything is made that costs money.
        auto address = pool_address_for(provider_->pool_host(), login_.address);
        return address ? Result<>{Ok{}} : Result<>{address.error()};
    }

    Result<> tell_plan() {
        auto machine = old_ ? look_up(*provider_, *old_) : Result<std::optional<Machine>>{std::nullopt};
        if (!machine) return machine.error();
        auto offers = provider_->offers();
        if (!offers) return offers.error();
        auto offer = choose_offer(*offers, wanted());
        if (!offer && !*machine) return offer.error();
        const Price price = *machine ? (*machine)->price : offer->price;
        if (session_.json) {
            print_json(session_.out, {{"dry_run", true},
                                      {"name", record_.name},
                                      {"exists", machine->has_value()},
                                      {"provider", record_.provider},
                                      {"gpu", record_.gpu},
                                      {"count", record_.count},
                                      {"pool", record_.pool},
                                      {"price", price_json(price)}});
            return Ok{};
        }
        session_.out << "Would " << (*machine ? "bring up '" : "create '") << record_.name << "' at provider "
                     << record_.provider << " (machine: "
                     << (*machine ? "" : offer->name + (offer->region.empty() ? "" : " in " + offer->region) + ", ")
                     << price_text(price) << month_text(price) << "), with " << record_.count << " x " << record_.gpu
                     << " from the pool at " << record_.pool << ". Nothing was changed.\n";
        return Ok{};
    }

    // What the order will be, as far as its price depends on it.
    Order wanted() const {
        Order order;
        order.name = record_.name;
        order.offer = options_.offer;
        order.region = options_.region;
        order.image = options_.image;
        return order;
    }

    static std::string month_text(const Price& price) {
        auto month = price.monthly();
        return month && *month > 0 ? ", " + price_text(price.currency, month, " a month") : "";
    }

    // --- the steps

    Result<> do_steps() {
        using StepFunction = Result<> (Start::*)();
        for (StepFunction step : {&Start::find_existing, &Start::make_keys, &Start::enroll, &Start::order,
                                  &Start::wait_running, &Start::get_in, &Start::install, &Start::prove}) {
            if (options_.no_wait && step == &Start::wait_running) return Ok{};
            if (auto done = (this->*step)(); !done) return done;
            if (interrupt::interrupted()) return interrupt::error();
        }
        return Ok{};
    }

    Result<> find_existing() {
        if (!old_ || old_->step < Step::ordered) return Ok{};
        auto found = look_up(*provider_, *old_);
        if (!found) return found.error();
        if (*found) {
            machine_ = **found;
            was_running_ = machine_.state == MachineState::running;
            record_.id = machine_.id;
            return Ok{};
        }
        progress_.say("'" + record_.name + "' was deleted outside tnr; making it anew");
        record_.id.clear();
        record_.host_key.clear();
        record_.step = Step::keys;
        return Ok{};
    }

    Result<> make_keys() {
        if (!record_.host_key.empty()) return save();
        auto host = ssh::generate_key();
        if (!host) return host.error();
        record_.host_key = ssh::public_line(*host, record_.name);
        record_.host_secret = ssh::private_file(*host, record_.name);
        record_.machine_key = wire::make_key_pair();
        record_.created = session_.now();
        return save();
    }

    // Every time: a pool whose state was lost learns the machine again.
    Result<> enroll() {
        progress_.begin("enrolling the machine's key at " + login_.address);
        auto enrolled = pool_->enroll_machine(record_.name, record_.machine_key.public_key);
        if (!enrolled) return enrolled;
        progress_.end();
        if (old_ && old_->pool != record_.pool) forget_at_old_pool();
        return reached(Step::enrolled);
    }

    // The machine moves to another pool; its key there would be of no use to anybody, so failing is no matter.
    void forget_at_old_pool() {
        auto login = session_.logins().find(old_->pool);
        if (!login) return;
        auto pool = session_.pool(*login);
        if (!pool || !(*pool)->forget_machine(record_.name))
            progress_.say("the pool at " + old_->pool + " could not be told that '" + record_.name + "' has left it");
    }

    Result<> order() {
        if (!record_.id.empty() || !machine_.id.empty()) return wake();
        auto own_key = ssh::load_or_create_key(session_.config_folder + "/ssh_key", "tnr");
        if (!own_key) return own_key.error();
        Order order = wanted();
        order.authorised_key = ssh::public_line(*own_key, "tnr");
        order.user_data = user_data(record_.name, record_.host_secret, record_.host_key, order.authorised_key);
        order.user = login_user;
        order.on_step = [this](const std::string& step) { progress_.note(step); };
        if (auto saved = reached(Step::ordered); !saved) return saved;
        progress_.begin("creating the machine at provider " + record_.provider);
        auto created = provider_->create(order);
        if (!created) return not_created(created.error());
        progress_.end();
        machine_ = *created;
        record_.id = machine_.id;
        record_.host_secret.clear();  // the machine has it now, and nobody else needs it
        return save();
    }

    // An order that failed may still have made something; only when it certainly did not is the step taken back.
    Error not_created(const Error& error) {
        auto found = look_up(*provider_, record_);
        if (found && (!*found || error.kind == Error::Kind::usage)) {
            record_.step = Step::enrolled;
            if (auto saved = save(); !saved) return saved.error();
        }
        return error;
    }

    Result<> wake() {
        if (machine_.state == MachineState::stopping) {
            progress_.begin("waiting until it has stopped");
            if (auto stopped = wait_while(MachineState::stopping); !stopped) return stopped;
            progress_.end();
        }
        if (machine_.state != MachineState::stopped) return Ok{};
        progress_.begin("starting the machine");
        if (auto started = provider_->start(machine_.id); !started) return started;
        progress_.end();
        machine_.state = MachineState::starting;
        return Ok{};
    }

    Result<> wait_running() {
        if (machine_.state == MachineState::running && !machine_.address.empty()) return Ok{};
        progress_.begin("waiting until it runs");
        if (auto running = wait_while(MachineState::starting); !running) return running;
        if (machine_.state != MachineState::running)
            return Error{Error::Kind::remote, "the machine did not start: it is " + to_string(machine_.state),
                         "`tnr start " + record_.name + "` tries again"};
        progress_.end();
        return Ok{};
    }

    Result<> wait_while(MachineState state) {
        for (int polls = 0; polls < state_polls_max; ++polls) {
            auto machine = provider_->machine(machine_.id);
            if (!machine) return machine.error();
            machine_ = *machine;
            if (machine_.state != state) return Ok{};
            if (!session_.pause(state_poll_ms)) return interrupt::error();
        }
        return Error{Error::Kind::remote, "the machine is still " + to_string(state) + " after 15 minutes",
                     "`tnr start " + record_.name + "` waits on"};
    }

    Result<> get_in() {
        access_ = session_.access();
        progress_.begin("waiting for SSH at " + machine_.address + " port " + std::to_string(machine_.ssh_port));
        auto in = access_->get_in(machine_, record_, [this](const std::string& words) {
            progress_.note(words);
            return still_running();
        });
        if (in) progress_.end();
        return in;
    }

    // A machine that died while it booted will never answer. Asked now and then only: clouds count requests, and a
    // provider that does not answer for a moment is no reason to give up.
    Result<> still_running() {
        if (++tries_in_vain_ % tries_per_look != 0) return Ok{};
        auto found = look_up(*provider_, record_);
        if (!found ||
            (*found && ((*found)->state == MachineState::running || (*found)->state == MachineState::starting)))
            return Ok{};
        return Error{Error::Kind::remote, "the machine has ended while it was booting: it is " +
                                              (*found ? to_string((*found)->state) : std::string("gone"))};
    }

    Result<> install() {
        auto address = pool_address_for(provider_->pool_host(), login_.address);
        if (!address) return address.error();
        GpuConfig config{
            *address, record_.gpu, record_.count, record_.name, {login_.keys.server_public, record_.machine_key}};
        progress_.begin("installing the GPU libraries");
        auto sent = access_->install(config, [this](const std::string& words) { progress_.note(words); });
        if (!sent) return sent.error();
        progress_.end(sent->empty() ? "nothing to do" : std::to_string(sent->size()) + " files");
        return reached(Step::installed);
    }

    Result<> prove() {
        progress_.begin("asking the machine for its GPU");
        auto proof = access_->prove();
        if (!proof) return proof.error();
        proof_ = *proof;
        while (!proof_.empty() && proof_.back() == '\n') proof_.pop_back();
        progress_.end(proof_);
        return reached(Step::proven);
    }

    // --- records and words

    Result<> save() { return session_.records().save(record_); }

    Result<> reached(Step step) {
        if (record_.step < step) record_.step = step;
        return save();
    }

    Result<> report() {
        if (session_.json) {
            print_json(session_.out, {{"name", record_.name},
                                      {"provider", record_.provider},
                                      {"id", record_.id},
                                      {"state", to_string(machine_.state)},
                                      {"address", machine_.address},
                                      {"ssh_port", machine_.ssh_port},
                                      {"gpu", record_.gpu},
                                      {"count", record_.count},
                                      {"pool", record_.pool},
                                      {"price", price_json(machine_.price)},
                                      {"was_running", was_running_},
                                      {"gpus", proof_}});
            return Ok{};
        }
        if (options_.no_wait && machine_.state != MachineState::running) {
            session_.out << "'" << record_.name << "' is " << to_string(machine_.state)
                         << " (machine: " << price_text(machine_.price) << "); `tnr start " << record_.name
                         << "` waits and installs\n";
            return Ok{};
        }
        session_.out << "'" << record_.name << "' " << (was_running_ ? "was already running; checked" : "is running")
                     << ": " << record_.count << " x " << record_.gpu << " (machine: " << price_text(machine_.price)
                     << ")\n  get in:  tnr connect " << record_.name << "\n  copy to: tnr sync FILE " << record_.name
                     << ":\n  remove:  tnr delete " << record_.name << "\n";
        return Ok{};
    }

    // Nothing that costs money is ever forgotten: whatever went wrong, the user hears what there is now.
    Error with_what_exists(Error error) {
        std::string words;
        if (record_.step >= Step::ordered)
            words = "the machine '" + record_.name + "' " + (machine_.id.empty() ? "may exist" : "exists") +
                    " at provider " + record_.provider + " (" + price_text(machine_.price) + "): `tnr start " +
                    record_.name + "` continues, `tnr delete " + record_.name + "` removes it";
        else if (file_begun())
            words = "no machine was made: `tnr start " + record_.name + "` continues, `tnr delete " + record_.name +
                    "` forgets it";
        if (!words.empty()) error.hint = error.hint.empty() ? words : error.hint + "\n" + words;
        return error;
    }

    bool file_begun() const { return !record_.host_key.empty(); }

    Session& session_;
    const StartOptions& options_;
    std::optional<Record> old_;  // as it was before
    Record record_;
    PoolLogin login_;
    std::unique_ptr<Pool> pool_;
    std::unique_ptr<Provider> provider_;
    std::unique_ptr<MachineAccess> access_;
    Machine machine_;
    bool was_running_ = false;
    int tries_in_vain_ = 0;  // to get in
    std::string proof_;
    ui::Progress progress_{session_.err, session_.err_is_terminal};
};

}  // namespace

Result<std::string> pool_address_for(const std::string& pool_host, const std::string& address) {
    auto endpoint = parse_endpoint(address);
    if (!endpoint) return endpoint.error();
    if (!endpoint->loopback()) return address;
    if (!pool_host.empty()) return "tcp://" + pool_host + ":" + std::to_string(endpoint->port);
    return Error{Error::Kind::usage,
                 "the pool's address " + address + " is this computer's own; the machine cannot reach it",
                 "sign in with an address that the machine can reach: `tnr login pool tcp://HOST:PORT …`"};
}

Result<> start(Session& session, const StartOptions& options) {
    return Start{session, options}.run();
}

}  // namespace tnr::cli
