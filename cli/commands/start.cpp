// Each step looks at what is there and does what is missing, so running the command again is always right: it
// continues after a Ctrl-C, repairs a machine that lost a file, starts a stopped one, changes the GPU of a running one.
#include "cli/commands/start.hpp"

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "api_client/base/text.hpp"
#include "api_client/offers.hpp"
#include "cli/ask.hpp"
#include "cli/budget_stop.hpp"
#include "cli/commands/reach.hpp"
#include "cli/commands/start_choice.hpp"
#include "cli/commands/start_words.hpp"
#include "cli/commands/waiting.hpp"
#include "cli/json_out.hpp"
#include "cli/own_gpu.hpp"
#include "cli/same_pool.hpp"
#include "cli/setup.hpp"
#include "cli/snapshots.hpp"
#include "cli/ssh_config.hpp"
#include "cli/take_over.hpp"
#include "cli/target.hpp"
#include "cli/timers.hpp"

namespace tnr::cli {
namespace {

constexpr int tries_per_look = 20;  // SSH is tried twice a second, or less often where a try takes long

class Start {
public:
    Start(Session& session, const StartOptions& options) : session_(session), options_(options) {}

    Result<> run() {
        if (auto good = check_machine_name(options_.name); !good) return good;
        auto lock = session_.records().lock(options_.name);
        if (!lock) return lock.error();
        if (auto known = learn(); !known) return known;
        if (options_.dry_run) return tell_plan();
        auto done = do_steps();
        if (!machine_.id.empty()) note();
        if (done) return report();
        for (const auto& trouble : troubles_) tell_error(session_, trouble.error);
        return with_what_exists(done.error(), record_, machine_);
    }

private:
    // --- what is wanted, and whether it can be had: nothing is changed yet

    Result<> learn() {
        auto record = session_.records().find(options_.name);
        if (!record) return record.error();
        old_ = *record;
        if (old_) record_ = *old_;
        record_.name = options_.name;
        if (auto known = learn_provider(); !known) return known;
        // What the user has mistyped is told before anybody else is asked.
        auto tags = parse_tags(options_.tags);
        if (!tags) return tags.error();
        for (const auto& [key, value] : *tags) record_.tags[key] = value;
        if (auto wished = learn_timers(); !wished) return wished;
        if (auto wished = wish_setup(record_, options_.setup, waiting_for(session_, options_.setup)); !wished)
            return wished;
        if (auto wished = own_gpus() ? learn_own_gpu() : learn_gpu(); !wished) return wished;
        return learn_shape();
    }

    bool own_gpus() const { return provider_->brings_gpus(); }

    Result<> learn_gpu() {
        auto opened = open_pool(session_, !options_.pool.empty() ? options_.pool : record_.pool);
        if (!opened) return opened.error();
        login_ = opened->login;
        pool_ = std::move(opened->pool);
        progress_.begin("asking the pool at " + login_.address, asking_patience);
        auto wish = choose_gpu(*pool_, wished_gpu(), "tnr start " + options_.name + " --gpu");
        if (!wish) return wish.error();
        progress_.end();
        record_.gpu = wish->type;
        record_.count = wish->count;
        record_.pool = login_.address;
        // Told before anything is made that costs money.
        auto address = pool_address_for(provider_->pool_host(), login_.address);
        return address ? Result<>{Ok{}} : Result<>{address.error()};
    }

    std::string wished_gpu() const {
        const bool as_before = options_.gpu.empty() && old_ && !old_->gpu.empty();
        return as_before ? old_->gpu + ":" + std::to_string(old_->count) : options_.gpu;
    }

    Result<> learn_own_gpu() {
        if (!options_.pool.empty()) return has_no_pool(record_, options_.pool);
        if (options_.gpu.empty() && options_.offer.empty() && old_ && !old_->id.empty()) return Ok{};  // it has one
        const std::string size = options_.offer.empty() ? record_.size : options_.offer;
        const bool by_size = options_.gpu.empty() && !options_.offer.empty();
        auto wish = choose_own_gpu(*provider_, by_size ? "" : wished_gpu(), size,
                                   "tnr start " + options_.name + " --provider " + record_.provider);
        if (!wish) return wish.error();
        record_.gpu = wish->type;
        record_.count = wish->count;
        record_.pool.clear();
        return Ok{};
    }

    // A machine that has switched itself off must be worth something afterwards.
    Result<> learn_timers() {
        if (auto wished = wish_timers(record_, options_.idle_stop, options_.ttl); !wished) return wished;
        if (!own_gpus() || !has_timers(record_)) return Ok{};
        return stays_on(record_);
    }

    Result<> learn_provider() {
        std::string name = options_.provider;
        if (name.empty()) name = old_ ? old_->provider : "local";
        if (old_ && old_->step >= Step::ordered && old_->provider != name)
            return Error{Error::Kind::usage, "'" + options_.name + "' exists at provider " + old_->provider,
                         "delete it first, or choose another name"};
        if (old_ && old_->provider != name) record_.size = record_.region = record_.image = "";  // another one's words
        record_.provider = name;
        auto provider = session_.provider(name);
        if (!provider) return provider.error();
        provider_ = std::move(*provider);
        return Ok{};
    }

    // What is told now is remembered, so that a start which continues orders the same.
    Result<> learn_shape() {
        if (!options_.offer.empty()) record_.size = options_.offer;
        if (!options_.region.empty()) record_.region = options_.region;
        if (!options_.image.empty()) {
            auto image = image_for(*provider_, options_.image);
            if (!image) return image.error();
            record_.image = *image;
        }
        bool told = !options_.offer.empty() || !options_.region.empty() || !options_.image.empty();
        return told ? provider_->check(wanted()) : Ok{};
    }

    Result<> tell_plan() {
        auto machine = old_ ? look_up(*provider_, *old_) : Result<std::optional<Machine>>{std::nullopt};
        if (!machine) return machine.error();
        auto offers = provider_->offers_in(record_.region);
        if (!offers) return offers.error();
        auto offer = choose_offer(*offers, wanted());
        if (!offer && !*machine) return offer.error();
        const Price price = *machine ? (*machine)->price : offer->price;
        if (!*machine || (*machine)->state != MachineState::running)
            if (auto warned = check_budget(session_, record_.provider, record_.pool, true); !warned) return warned;
        if (session_.json) {
            auto planned = machine_json(record_, *machine, "not created");
            planned["price"] = price_json(price);
            print_plan_or_result(planned, machine->has_value());
            return Ok{};
        }
        session_.out << plan_text(record_, *machine ? "" : size_text(*offer), price,
                                  own_gpus() ? nullptr : pool_.get());
        return Ok{};
    }

    Order wanted() const { return order_of(record_, own_gpus()); }

    // --- the steps

    Result<> do_steps() {
        using StepFunction = Result<> (Start::*)();
        const std::vector<StepFunction> with_pool = {&Start::find_existing, &Start::within_budget, &Start::make_keys,
                                                     &Start::enroll,        &Start::order,         &Start::wait_running,
                                                     &Start::get_in,        &Start::install,       &Start::set_timers,
                                                     &Start::prove,         &Start::set_up};
        const std::vector<StepFunction> with_own_gpus = {
            &Start::find_existing, &Start::within_budget, &Start::begin_record, &Start::order,
            &Start::wait_running,  &Start::get_in,        &Start::prove_own,    &Start::set_up};
        for (StepFunction step : own_gpus() ? with_own_gpus : with_pool) {
            if (options_.no_wait && step == &Start::wait_running) return Ok{};
            if (auto done = (this->*step)(); !done) return done;
            if (interrupt::interrupted()) return interrupt::error();
        }
        return Ok{};
    }

    Result<> find_existing() {
        if (!old_ || old_->step < Step::ordered) return name_is_free();
        auto found = look_up(*provider_, *old_);
        if (!found) return found.error();
        if (*found && (*found)->unfinished) {  // order() goes on with it
            record_.id.clear();
            goes_on_ = true;
            return Ok{};
        }
        if (*found) {
            machine_ = **found;
            if (auto good = may_go_on_with(machine_); !good) return good;
            auto there = wait_until_stopped();
            if (!there) return there.error();
            if (*there) return go_on();
        }
        machine_ = {};
        progress_.say("'" + record_.name + "' was deleted outside tnr; making it anew");
        record_.id.clear();
        record_.host_key.clear();
        record_.created.clear();
        record_.step = Step::keys;
        record_.has_gpu.clear();
        record_.has_count = 0;
        record_.setup_done = false;
        record_.open_ports.clear();
        return Ok{};
    }

    Result<> may_go_on_with(const Machine& found) {
        if (auto keeps = keeps_its_shape(*old_, record_, found, *provider_); !keeps) return keeps;
        if (!options_.gpu.empty())
            if (auto keeps = keeps_own_gpu(record_, found); !keeps) return keeps;
        if (auto key = login_key(*old_, session_.config_folder); !key) return key.error();
        return Ok{};
    }

    // False: it is gone. Google's machines stop before they go, and that is what a `tnr delete` that was killed leaves.
    Result<bool> wait_until_stopped() {
        if (machine_.state != MachineState::stopping) return true;
        progress_.begin("waiting until it has stopped");
        auto stopped = wait_while(session_, *provider_, machine_, MachineState::stopping);
        if (!stopped && stopped.error().kind != Error::Kind::not_found) return stopped.error();
        progress_.end();
        return stopped && machine_.state != MachineState::gone;
    }

    Result<> go_on() {
        existed_ = true;
        was_running_ = machine_.state == MachineState::running;
        record_.id = machine_.id;
        return Ok{};
    }

    Result<> within_budget() {
        record_.over_budget = options_.over_budget || (was_running_ && record_.over_budget);
        if (was_running_) return Ok{};  // it costs what it costs already
        return check_budget(session_, record_.provider, record_.pool, options_.over_budget);
    }

    // Before the pool is told a new key under that name, which would take the GPU from the machine that has it.
    Result<> name_is_free() {
        Record nameless;
        nameless.name = record_.name;
        auto found = look_up(*provider_, nameless);
        if (!found) return found.error();
        return *found ? Result<>{name_is_taken(record_)} : Ok{};
    }

    // A machine that this start switches on has its whole time from now on, also in the eyes of a `tnr status` beside us.
    Result<> make_keys() {
        if (record_.ttl_ends == 0 || !was_running_) begin_ttl(record_, session_.now());
        if (!record_.host_key.empty()) return save();
        auto host = ssh::generate_key();
        if (!host) return host.error();
        record_.host_key = ssh::public_line(*host, record_.name);
        record_.host_secret = ssh::private_file(*host, record_.name);
        record_.machine_key = wire::make_key_pair();
        record_.created = session_.now();
        return save();
    }

    // Without keys for the machine, which nobody can plant there.
    Result<> begin_record() {
        if (record_.created.empty()) record_.created = session_.now();
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
        if (!login || one_pool(*login, login_)) return;  // another address of this pool, which has just enrolled it
        auto pool = session_.pool(*login);
        if (!pool || !(*pool)->forget_machine(record_.name))
            progress_.say("the pool at " + old_->pool + " could not be told that '" + record_.name + "' has left it");
    }

    Result<> order() {
        if (!record_.id.empty() || !machine_.id.empty()) return wake();
        auto key = make_login_key(record_, session_.config_folder);
        if (!key) return key.error();
        Order order = wanted();
        order.authorised_key = ssh::public_line(*key, login_key_comment);
        if (!own_gpus())
            order.user_data = user_data(record_.name, record_.host_secret, record_.host_key, order.authorised_key);
        order.user = login_user;
        order.goes_on = goes_on_;
        order.on_step = [this](const std::string& step) { progress_.note(step); };
        if (auto saved = reached(Step::ordered); !saved) return saved;
        progress_.begin("creating the machine at provider " + record_.provider);
        auto created = provider_->create(order);
        if (!created) return not_created(created.error());
        progress_.end();
        machine_ = *created;
        record_.id = machine_.id;
        record_.host_secret.clear();  // the machine has it now, and nobody else needs it
        note();
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
        if (machine_.state != MachineState::stopped) return Ok{};
        progress_.begin("starting the machine");
        if (auto started = provider_->start(machine_.id); !started) return started;
        progress_.end();
        machine_.state = MachineState::starting;
        note();
        return Ok{};
    }

    Result<> wait_running() {
        if (machine_.state == MachineState::running && !machine_.address.empty()) return Ok{};
        progress_.begin("waiting until it runs");
        if (auto running = wait_while(session_, *provider_, machine_, MachineState::starting); !running) return running;
        if (machine_.state != MachineState::running)
            return Error{Error::Kind::remote, "the machine did not start: it is " + to_string(machine_.state),
                         "`tnr start " + record_.name + "` tries again"};
        progress_.end();
        return Ok{};
    }

    Result<> get_in() {
        if (auto put = SshConfig(session_).put(record_, machine_); !put) progress_.say("note: " + put.error().what);
        access_ = session_.access();
        progress_.begin("waiting for SSH at " + machine_.address + " port " + std::to_string(machine_.ssh_port));
        auto waiting = [this](const std::string& words) {
            progress_.note(words);
            return still_running();
        };
        if (own_gpus() && record_.host_key.empty()) return meet(waiting);
        auto in = access_->get_in(machine_, record_, waiting);
        if (in) progress_.end();
        return in;
    }

    // The one moment in which a machine is believed who it is; its user hears so, with what there is to compare.
    Result<> meet(const Waiting& waiting) {
        auto key = access_->meet(machine_, record_, waiting);
        if (!key) return key.error();
        progress_.end();
        record_.host_key = *key;
        auto blob = ssh::blob_of_line(*key);
        if (!blob) return blob.error();
        progress_.say("note: " + record_.provider + " lets nobody plant a host key, so the one that '" + record_.name +
                      "' shows now is trusted: " + ssh::fingerprint(*blob) + "; from now on no other is accepted");
        if (auto put = SshConfig(session_).put(record_, machine_); !put) progress_.say("note: " + put.error().what);
        return save();
    }

    // A machine that died while it booted will never answer. Asked now and then only: clouds count requests, and a
    // provider that does not answer for a moment is no reason to give up.
    Result<> still_running() {
        if (++tries_in_vain_ % tries_per_look != 0) return Ok{};
        auto found = look_up(*provider_, record_);
        if (!found ||
            (*found && ((*found)->state == MachineState::running || (*found)->state == MachineState::starting)))
            return Ok{};
        return ended_while_booting(*found);
    }

    Result<> install() {
        auto address = pool_address_for(provider_->pool_host(), login_.address);
        if (!address) return address.error();
        GpuConfig config{
            *address, record_.gpu, record_.count, record_.name, {login_.keys.server_public, record_.machine_key}};
        progress_.begin("installing the GPU libraries");
        auto sent = access_->install(config, [this](const std::string& words) { progress_.note(words); });
        if (!sent) return sent.error();
        progress_.end(sent->empty() ? "nothing to do" : counted(sent->size(), "file"));
        record_.has_gpu = record_.gpu;
        record_.has_count = record_.count;
        return reached(Step::installed);
    }

    Result<> prove() {
        progress_.begin("asking the machine for its GPU");
        auto seen = access_->prove();
        return seen ? tell_seen(*seen) : Result<>{seen.error()};
    }

    Result<> tell_seen(const Proof& seen) {
        seen_ = seen.gpus;
        const std::string words = gpus_text(seen_);
        progress_.end(seen.note.empty() ? words : words + " (" + seen.note + ")");
        return reached(Step::proven);
    }

    Result<> prove_own() {
        progress_.begin("asking the machine for its GPU");
        auto seen = access_->prove_own();
        if (!seen) return seen.error();
        take_own_gpu(record_, machine_);
        return tell_seen(*seen);
    }

    // Timers that are off are told to a machine that may have had some, as one made from a snapshot.
    Result<> set_timers() {
        if (auto planned = plan_budget_stop(session_, record_); !planned) return planned;
        bool had = (old_ && has_timers(*old_)) || (!record_.image.empty() && !existed_);
        if (!has_timers(record_) && !had) return Ok{};
        progress_.begin("setting when it switches itself off");
        auto set = access_->install_timers(timers_config(record_), [this](auto& words) { progress_.note(words); });
        if (set) progress_.end();
        return set;
    }

    Result<> set_up() {
        auto done = run_setup(record_, *access_, progress_);
        return done ? save() : done;
    }

    // --- records and words

    Result<> save() { return session_.records().save(record_); }

    // The last one counts: it takes along what could not be written down before.
    void note() {
        auto noted = note_machine(session_, machine_, record_, unwritten_);
        troubles_ = noted ? std::vector<Trouble>{} : std::vector<Trouble>{{record_.name, noted.error()}};
    }

    Result<> reached(Step step) {
        if (record_.step < step) record_.step = step;
        return save();
    }

    Result<> report() {
        if (session_.json) {
            print_plan_or_result(machine_json(record_, machine_, ""), existed_);
            return Ok{};
        }
        tell_started(session_, record_, machine_, *provider_, {options_.no_wait, was_running_});
        tell_troubles(session_, troubles_);
        return Ok{};
    }

    void print_plan_or_result(const nlohmann::json& machine, bool existed) {
        print_document(session_, "start",
                       {{"machine", machine},
                        {"dry_run", options_.dry_run},
                        {"existed", existed},
                        {"was_running", was_running_},
                        {"silent", options_.silent},
                        {"gpus", gpus_json(seen_)}},
                       troubles_);
    }

    Session& session_;
    const StartOptions& options_;
    std::optional<Record> old_;  // as it was before
    Record record_;
    PoolLogin login_;
    std::unique_ptr<Pool> pool_;
    std::unique_ptr<Provider> provider_;
    std::unique_ptr<MachineAccess> access_;
    Machine machine_;
    bool existed_ = false, was_running_ = false, goes_on_ = false;
    int tries_in_vain_ = 0;  // to get in
    std::vector<SeenGpu> seen_;
    std::vector<Sighting> unwritten_;
    std::vector<Trouble> troubles_;  // that keep no machine from being there
    ui::Progress progress_{session_.screen()};
};

}  // namespace

Result<> start(Session& session, const StartOptions& options) {
    auto ours = in_our_words(session, options);
    if (!ours) return ours.error();
    auto known = taken_over(session, *ours);
    if (!known) return known.error();
    auto wanted = with_defaults(session, *known);
    if (!wanted) return wanted.error();
    auto complete = complete_options(session, *wanted);
    if (!complete) return complete.error();
    return Start{session, *complete}.run();
}

}  // namespace tnr::cli
