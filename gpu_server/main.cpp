// tnr-gpu-server: puts this machine's GPUs into a pool. The grammar of its commands; what they do is in supervisor/.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/config_file.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/pool/patience.hpp"
#include "gpu_server/supervisor/backup.hpp"
#include "gpu_server/supervisor/check.hpp"
#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/helpers.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/node_commands.hpp"
#include "gpu_server/supervisor/price_commands.hpp"
#include "gpu_server/supervisor/reload_command.hpp"
#include "gpu_server/supervisor/status_command.hpp"
#include "gpu_server/supervisor/supervisor.hpp"
#include "gpu_server/supervisor/user_commands.hpp"
#include "gpu_server/usage_error.hpp"
#include "gpu_server/worker/worker.hpp"

namespace tnr::server {
namespace {

void add_format(CLI::App& command, std::string& format) {
    command.add_option("-o,--output", format, "table or json")
        ->capture_default_str()
        ->check(CLI::IsMember({"table", "json"}))
        ->type_name("FORMAT");
}

// What a command does that takes the options of `serve`.
using Serving = std::function<Result<>(const ServeOptions& options)>;

// How it logs: for all that is called later.
struct LogOptions {
    std::string format, level;
    void apply() const {
        if (format == "json") set_log_format(LogFormat::json);
        if (!level.empty()) setenv("TNR_LOG", level.c_str(), 1);  // workers have it, too
    }
};

// What is set there wrongly means the default. It is no error: TNR_LOG may be meant for programs, which know other words.
void tell_of_environment() {
    const auto tell = [](const char* name, const std::string& known, const auto& is_known) {
        const char* set = std::getenv(name);
        if (!set || !*set || is_known(std::string_view(set))) return;
        log(LogLevel::warning, std::string(name) + "=" + printable(set) + " is not heeded: it is none of " + known);
    };
    const auto& levels = log_level_names;
    tell("TNR_LOG", "error, warning, info, debug, trace", [&](std::string_view set) {
        return std::find(std::begin(levels), std::end(levels), set) != std::end(levels);
    });
    for (auto* name : {grace_variable, knock_variable})
        tell(name, "the numbers of milliseconds",
             [](std::string_view set) { return milliseconds_from(set).has_value(); });
}

CLI::App* add_serving(CLI::App& app, Result<>& result, const char* name, const char* what, const Serving& run) {
    auto options = std::make_shared<ServeOptions>();
    auto logging = std::make_shared<LogOptions>();
    auto config = std::make_shared<std::string>();
    auto ports = std::make_shared<std::string>();
    auto linger_ms = std::make_shared<int64_t>(default_linger.count());
    auto stop_grace_s = std::make_shared<int64_t>(0);
    auto* command = app.add_subcommand(name, what);
    command
        ->add_option("--config", *config,
                     "Take from this file what the command line does not say: lines like http = \"127.0.0.1:14980\"")
        ->type_name("FILE");
    command->add_option("--listen", options->listen, "Address for clients; port 0: any free one")
        ->capture_default_str()
        ->type_name("tcp://HOST:PORT");
    auto* driver = command->add_option("--driver", options->gpus.driver, "libcuda.so.1 to use (default: the system's)");
    command
        ->add_option("--emulate", options->gpus.emulate,
                     "Emulate GPUs on the CPU instead: h100:2,a100. Slow, and good for trying and testing")
        ->excludes(driver);
    command->add_option("--nvml", options->nvml, "libnvidia-ml.so.1 to use (default: the system's, unless emulating)");
    command->add_option("--emulated-memory", options->gpus.emulated_memory_mib, "Memory of each emulated GPU")
        ->check(CLI::Range(1, 1 << 20))  // as the emulated driver takes it
        ->type_name("MIB");
    command->add_flag("--plain", options->plain, "No keys and no encryption; only on loopback");
    command->add_option("--state", options->state, "Folder for keys and the ledger")
        ->type_name("DIR (default: ~/.local/state/tnr/server)");
    command
        ->add_option(
            "--store", options->store,
            "Pool of several nodes: the etcd that they share, with the pool's name if it has several (default: a "
            "file, for this node alone)")
        ->type_name("etcd://HOST:PORT[,HOST:PORT...][/POOL]");
    command->add_option("--node", options->node, "This node's name in the pool (default: the host's)")
        ->type_name("NAME");
    command
        ->add_option("--control-address", options->control_address,
                     "Where clients reach this server when another node sends them (default: where it listens)")
        ->type_name("tcp://HOST:PORT");
    command
        ->add_option("--worker-bind", options->worker_bind,
                     "Address of this host that the workers listen on (default: that of --listen)")
        ->type_name("HOST");
    command
        ->add_option(
            "--worker-address", options->worker_address,
            "Host under which clients reach the workers, such as a router's (default: as they reached the server)")
        ->type_name("HOST");
    command->add_option("--worker-ports", *ports, "Ports for the workers, for firewalls (default: any)")
        ->type_name("FIRST-LAST");
    command->add_flag(
        "--one-port", options->one_port,
        "Clients reach the workers, too, through the port of --listen, for firewalls that let in no other");
    command
        ->add_option("--linger-ms", *linger_ms,
                     "How long a GPU is kept unwiped for the same key (without keys: machine) after its last process")
        ->capture_default_str()
        ->check(CLI::Range(0, 3'600'000));
    command
        ->add_option("--image-cache-mib", options->image_cache_mib,
                     "Disk space for programs' code, so that it need not be sent twice; 0: none")
        ->capture_default_str()
        ->check(CLI::Range(0, 1 << 30))
        ->type_name("MIB");
    command
        ->add_option(
            "--lanes", options->lanes,
            "Connections for the data of an encrypted session, each with a thread of its own; 0: only its first one")
        ->capture_default_str()
        ->check(CLI::Range(size_t{0}, wire::lanes_max));
    command
        ->add_option("--host-memory-mib", options->host_memory_mib,
                     "Memory of this node that the workers of one machine may hold, per GPU (default: a GPU's share of "
                     "three quarters of it, at least 4096)")
        ->check(CLI::Range(0, 1 << 30))
        ->type_name("MIB");
    command
        ->add_option(
            "--http", options->http,
            "Be watched there: a page for people, /metrics for Prometheus, /healthz. Whoever reaches the address "
            "sees who uses which GPU: it has no password, so leave it on loopback, or put it behind one")
        ->type_name("HOST:PORT, such as 127.0.0.1:14980");
    command
        ->add_option("--stop-grace", *stop_grace_s,
                     "When asked to stop: how long programs that run may go on; a second signal ends them at once")
        ->capture_default_str()
        ->check(CLI::Range(0, 7 * 24 * 3600))
        ->type_name("SECONDS");
    command
        ->add_option("--log-format", logging->format,
                     "text, or json: one object a line (default: TNR_LOG_FORMAT, or text)")
        ->envname("TNR_LOG_FORMAT")
        ->check(CLI::IsMember({"text", "json"}))
        ->type_name("FORMAT");
    command
        ->add_option("--log-level", logging->level, "error, warning, info, debug or trace (default: TNR_LOG, or info)")
        ->check(CLI::IsMember({"error", "warning", "info", "debug", "trace"}))
        ->type_name("LEVEL");
    command->add_option("--name", options->name, "The pool's name, for the log");
    command->add_option("--history", options->history, "What this node believes, and when")->group("");  // tests
    command->add_option("--emulated-seed", options->gpus.emulated_seed, "Of the emulated GPUs' UUIDs")->group("");
    command->add_option("--emulated-memory-folder", options->gpus.emulated_memory_folder, "")->group("");     // tests
    command->add_flag("--unsafe-no-wipe", options->gpus.unsafe_no_wipe, "Leave memory as it is")->group("");  // tests
    command->add_option("--worker-program", options->gpus.program, "What to run as worker")->group("");       // tests
    command->callback([=, &result] {
        if (!config->empty())
            if (auto read = read_config(*command, *config); !read) return void(result = read.error());
        logging->apply();
        tell_of_environment();
        options->linger = milliseconds(*linger_ms);
        options->stop_grace = std::chrono::seconds(*stop_grace_s);
        if (options->nvml.empty() && options->gpus.emulate.empty()) options->nvml = "libnvidia-ml.so.1";
        if (!ports->empty()) {
            auto range = parse_port_range(*ports);
            if (!range) return void(result = range.error());
            options->worker_ports = *range;
        }
        if (options->one_port && !(options->worker_bind.empty() && options->worker_address.empty() && ports->empty()))
            return void(result = Error{Error::Kind::usage,
                                       "with --one-port, workers have neither an address nor ports of their own",
                                       "leave --worker-bind, --worker-address and --worker-ports away"});
        result = run(*options);
    });
    return command;
}

void add_serve(CLI::App& app, Result<>& result) {
    add_serving(app, result, "serve", "Serve this machine's GPUs until told to stop", [](const ServeOptions& options) {
        if (is_asked()) return answer_question(can_take_over(options));
        return serve(options, [](const std::string& address) {
            std::cout << "listening on " << address << std::endl;  // flushed: somebody waits for this line
        });
    });
}

void add_state(CLI::App* command, std::string& state) {
    command->add_option("--state", state, "The server's folder, as given to serve")->type_name("DIR");
}

void add_check(CLI::App& app, Result<>& result) {
    auto format = std::make_shared<std::string>("table");
    auto* command = add_serving(app, result, "check", "Look whether all that `serve` needs with these options is there",
                                [format](const ServeOptions& options) { return check(options, *format, std::cout); });
    add_format(*command, *format);
}

void add_backup(CLI::App& app, Result<>& result) {
    auto file = std::make_shared<std::string>(), state = std::make_shared<std::string>();
    auto replace = std::make_shared<bool>(false);
    auto* backup = app.add_subcommand("backup", "Copy the store and the server's key to a file, also while it serves");
    auto* restore = app.add_subcommand("restore", "Put a backup back, while no server runs");
    for (auto* each : {backup, restore}) {
        each->add_option("file", *file, "The backup. It holds the server's secret key")->required();
        each->add_option("--state", *state, "The server's folder, as given to serve")->type_name("DIR");
    }
    restore->add_flag("--replace", *replace, "Also where there is a store; that is kept as *.before-restore");
    backup->callback([=, &result] { result = make_backup(*state, *file, std::cout); });
    restore->callback([=, &result] { result = restore_backup(*state, *file, *replace, std::cout); });
}

// Also as `enroll`, as it was called once.
void add_user_add(CLI::App& app, const std::string& called, Result<>& result) {
    auto options = std::make_shared<UserAddOptions>();
    auto* command = app.add_subcommand(called, "Let somebody in: prints the line they paste");
    command->add_option("name", options->name, "Name for the user")->required();
    command->add_flag("--token", options->token,
                      "Print a token, good once: the user's key is made on their own computer and never leaves it");
    command->add_option("--expires", options->expires, "How long the token is good (default: 1h)")->type_name("TIME");
    command->add_flag("--operator", options->is_operator, "They may see everybody's claims, queue and bills");
    command->add_option("--address", options->address, "How clients reach this server (default: where it listens)")
        ->type_name("tcp://HOST:PORT");
    command->add_flag("--replace", options->replace,
                      "Make the user's earlier key and their machines' worthless, and end what they run");
    add_state(command, options->state);
    command->callback([options, &result] { result = user_add(*options, std::cout); });
    if (called == "enroll") command->group("");
}

void add_user_remove(CLI::App& user, Result<>& result) {
    struct Options {
        std::string name, machine, state;
    };
    auto options = std::make_shared<Options>();
    auto* command = user.add_subcommand(
        "remove", "Lock a user and their machines out, end what they run, and remove what is kept of them");
    command->add_option("name", options->name, "As `user list` names them")->required();
    command->add_option("--machine", options->machine, "Only this machine of theirs");
    add_state(command, options->state);
    command->callback(
        [options, &result] { result = user_remove(options->name, options->machine, options->state, std::cout); });
}

void add_user_limit(CLI::App& user, Result<>& result) {
    auto options = std::make_shared<UserLimitOptions>();
    auto* command = user.add_subcommand("limit", "Say what a user may do, and when it is their turn if several wait");
    command->add_option("name", options->name, "As `user list` names them")->required();
    command->add_option("--gpus", options->gpus, "GPUs at once, of all types together; 0: as many as there are")
        ->check(CLI::Range(0, 1'000'000));
    command
        ->add_option("--device-memory", options->device_memory,
                     "Memory of each GPU that a machine of theirs may use, such as 16G; 0: all there is")
        ->type_name("SIZE");
    command->add_option("--weight", options->weight, "Of two that wait, one with 2 gets twice as much (at first: 1)")
        ->check(CLI::Range(0.01, 100.0));
    command
        ->add_option("--priority", options->priority,
                     "Of those who wait, the one with the highest is first, whatever they used before (at first: 0)")
        ->check(CLI::Range(-priority_max, priority_max));
    command->add_option("--role", options->role, "An operator may see everybody's claims, queue and bills")
        ->check(CLI::IsMember({"user", "operator"}));
    add_state(command, options->state);
    command->callback([options, &result] { result = user_limit(*options, std::cout); });
}

void add_user(CLI::App& app, Result<>& result) {
    auto* user = app.add_subcommand("user", "Who may use the pool, and what: add, list, remove, limit");
    user->require_subcommand(1);
    add_user_add(*user, "add", result);
    auto state = std::make_shared<std::string>();
    auto* list = user->add_subcommand("list", "List the users and their machines");
    add_state(list, *state);
    list->callback([state, &result] { result = user_list(*state, std::cout); });
    add_user_remove(*user, result);
    add_user_limit(*user, result);
}

void add_rotate_key(CLI::App& app, Result<>& result) {
    auto options = std::make_shared<RotateOptions>();
    auto* command = app.add_subcommand("rotate-key", "Give the server a new key, without anybody noticing");
    command
        ->add_option("--overlap", options->overlap,
                     "How long the old key goes on beside it; clients that come in that time learn the new one "
                     "(default: 30d). 0s, if the old one is in wrong hands: then everybody signs in again")
        ->type_name("TIME");
    command->add_flag("--drop-old", options->drop_old, "End the last rotation's overlap now");
    add_state(command, options->state);
    command->callback([options, &result] { result = rotate_key(*options, std::cout); });
}

void add_audit(CLI::App& app, Result<>& result) {
    auto since = std::make_shared<std::string>(), state = std::make_shared<std::string>();
    auto* command = app.add_subcommand("audit", "Print who was refused what, and who changed what anybody may do");
    command->add_option("--since", *since, "Only the last 10m, 24h, 7d (default: all there is)")->type_name("TIME");
    add_state(command, *state);
    command->callback([since, state, &result] { result = print_audit(*since, *state, std::cout); });
}

void add_nodes(CLI::App& app, Result<>& result) {
    auto add = [&](const char* name, const char* what, bool of_one, auto run) {
        auto options = std::make_shared<NodeOptions>();
        auto* command = app.add_subcommand(name, what);
        if (of_one) command->add_option("node", options->node, "The node's name, as `nodes` lists it")->required();
        command->add_option("--state", options->state, "The folder of any of the pool's servers")->type_name("DIR");
        command->add_option("--store", options->store, "The pool's store, where no server's folder is at hand")
            ->type_name("etcd://HOST:PORT");
        command->callback([options, run, &result] { result = run(*options); });
    };
    add("nodes", "List the pool's nodes: their state, GPUs and claims", false,
        [](const NodeOptions& options) { return list_nodes(options, std::cout); });
    add("drain", "A node takes no new programs from now on; those that run on it go on", true,
        [](const NodeOptions& options) { return drain_node(options, true, std::cout); });
    add("undrain", "A node that was drained takes programs again", true,
        [](const NodeOptions& options) { return drain_node(options, false, std::cout); });
    add("remove-node", "Forget a node that is gone for good, so that its GPUs may serve at another", true,
        [](const NodeOptions& options) { return remove_node(options, std::cout); });
}

void add_prices(CLI::App& app, Result<>& result) {
    struct Options {
        std::string gpu, price, state;
        bool history = false, clock_is_right = false;
    };
    auto options = std::make_shared<Options>();
    auto* command =
        app.add_subcommand("prices", "What an hour of each type of GPU costs; users see it and are billed it");
    command->add_option("--state", options->state, "The server's folder, as given to serve")->type_name("DIR");
    auto* list = command->add_subcommand("list", "Show them (also without `list`)");
    for (auto* each : {command, list})
        each->add_flag("--history", options->history, "All there ever were, and since when");
    auto* set = command->add_subcommand("set", "Set one, from now on; what was used before keeps its price");
    set->add_option("type", options->gpu, "h100, as `tnr gpus` names it")->required();
    set->add_option("price", options->price, "Of one GPU by the hour: 2.49/h (dollars), 2.49EUR/h, 0/h")->required();
    auto* remove = command->add_subcommand("remove", "From now on the type has no price: users see \"unknown\"");
    remove->add_option("type", options->gpu, "h100, as `tnr gpus` names it")->required();
    for (auto* each : {set, remove})
        each->add_flag("--clock-is-right", options->clock_is_right,
                       "Also where the last price begins later than now: it was set while a clock was ahead");
    for (auto* each : {list, set, remove}) each->fallthrough();  // --state may stand behind them
    command->require_subcommand(0, 1);
    command->callback([=, &result] {
        if (*set)
            result =
                set_price(options->gpu, options->price, options->state, options->clock_is_right, std::cout, std::cerr);
        else if (*remove)
            result = remove_price(options->gpu, options->state, options->clock_is_right, std::cout);
        else
            result = list_prices(options->history, options->state, std::cout);
    });
}

void add_status(CLI::App& app, Result<>& result) {
    auto state = std::make_shared<std::string>(), format = std::make_shared<std::string>("table");
    auto* command = app.add_subcommand(
        "status",
        "Show what the server that runs on this folder is doing, and what the pool's other nodes say of theirs");
    command->add_option("--state", *state, "The server's folder, as given to serve")->type_name("DIR");
    add_format(*command, *format);
    auto limits = std::make_shared<bool>(false);
    command->add_flag("--limits", *limits, "Also what each user, machine and program may have at most");
    command->callback([=, &result] { result = show_status(*state, *format, *limits, std::cout); });
}

void add_reload(CLI::App& app, Result<>& result) {
    auto state = std::make_shared<std::string>();
    auto* command = app.add_subcommand(
        "reload", "Replace the server that runs on this folder by the one installed now; programs that run go on");
    add_state(command, *state);
    command->callback([=, &result] { result = reload(*state, std::cout); });
}

// Most often a variable that is not set: it would quietly mean the default.
void refuse_empty_values(CLI::App& app) {
    const CLI::Validator not_empty(
        [](std::string& value) {
            return value.empty() ? std::string("its value is empty; for the default, leave it away") : std::string();
        },
        "");
    for (auto* option : app.get_options())
        if (!option->get_lnames().empty() && option->get_expected_max() > 0) option->check(not_empty);
    for (auto* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*command);
}

uint64_t number(const char* text) {
    return text ? std::strtoull(text, nullptr, 10) : 0;
}

// Not for people: what the supervisor starts (supervisor/child.hpp), several for each claim. So it does without the grammar,
// which takes milliseconds to make. Nothing: it is a command for people.
std::optional<int> run_helper(int argc, char** argv) {
    const std::string name = argc > 1 ? argv[1] : "";
    if (name == "worker") worker::run_worker(child_control_fd, child_listen_fd);
    if (name == "probe-gpus") return run_probe(child_control_fd);
    if (name == "wipe-gpu") return run_wipe(child_control_fd, number(argv[2]));
    if (name == "store-image" && argc > 3)
        return run_store_image(child_control_fd, child_file_fd, argv[2], number(argv[3]));
    return std::nullopt;
}

int exit_code(const Result<>& result) {
    if (result) return 0;
    std::cerr << "tnr-gpu-server: " << result.error().what << "\n";
    if (!result.error().hint.empty()) std::cerr << "hint: " << result.error().hint << "\n";
    return result.error().kind == Error::Kind::usage ? 2 : 1;
}

}  // namespace
}  // namespace tnr::server

int main(int argc, char** argv) {
    using namespace tnr::server;
    if (auto helped = run_helper(argc, argv)) return *helped;
    CLI::App app{"Puts this machine's GPUs into a pool, for programs on machines without one.", "tnr-gpu-server"};
    app.footer(
        "Try it on one machine, without a GPU and without keys:\n"
        "  tnr-gpu-server serve --plain --emulate h100:2\n"
        "  tnr run --gpu h100 --pool tcp://127.0.0.1:14900 -- ./my_cuda_program\n"
        "For others, with encryption:\n"
        "  tnr-gpu-server serve --listen tcp://0.0.0.0:14900\n"
        "  tnr-gpu-server user add alice --token      prints the line alice pastes\n");
    app.require_subcommand(1);
    app.set_version_flag("--version", "tnr-gpu-server " + tnr::control::version());
    tnr::Result<> result = tnr::Ok{};
    add_serve(app, result);
    add_user(app, result);
    add_user_add(app, "enroll", result);
    add_rotate_key(app, result);
    add_audit(app, result);
    add_prices(app, result);
    add_nodes(app, result);
    add_status(app, result);
    add_reload(app, result);
    add_check(app, result);
    add_backup(app, result);
    app.add_subcommand("version", "Print the version")->callback([] {
        std::cout << "tnr-gpu-server " << tnr::control::version() << "\n";
    });
    refuse_empty_values(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help
        return exit_code(usage_error(app, error));
    }
    return exit_code(result);
}
