// tnr-gpu-server: puts this machine's GPUs into a pool. The grammar of its commands; what they do is in supervisor/.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/commands.hpp"
#include "gpu_server/supervisor/helpers.hpp"
#include "gpu_server/supervisor/price_commands.hpp"
#include "gpu_server/supervisor/supervisor.hpp"
#include "gpu_server/worker/worker.hpp"

namespace tnr::server {
namespace {

void add_serve(CLI::App& app, Result<>& result) {
    auto options = std::make_shared<ServeOptions>();
    auto ports = std::make_shared<std::string>();
    auto linger_ms = std::make_shared<int64_t>(default_linger.count());
    auto* command = app.add_subcommand("serve", "Serve this machine's GPUs until told to stop");
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
        ->type_name("MIB");
    command->add_flag("--plain", options->plain, "No keys and no encryption; only on loopback");
    command->add_option("--state", options->state, "Folder for keys and the ledger")
        ->type_name("DIR (default: ~/.local/state/tnr/server)");
    command->add_option("--worker-address", options->worker_address,
                        "Host under which clients reach the workers (default: as they reached the server)");
    command->add_option("--worker-ports", *ports, "Ports for the workers, for firewalls (default: any)")
        ->type_name("FIRST-LAST");
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
    command->add_option("--name", options->name, "The pool's name, for the log");
    command->add_option("--worker-program", options->gpus.program, "What to run as worker")->group("");  // tests
    command->callback([options, ports, linger_ms, &result] {
        options->linger = milliseconds(*linger_ms);
        if (options->nvml.empty() && options->gpus.emulate.empty()) options->nvml = "libnvidia-ml.so.1";
        if (!ports->empty()) {
            auto range = parse_port_range(*ports);
            if (!range) return void(result = range.error());
            options->worker_ports = *range;
        }
        result = serve(*options, [](const std::string& address) {
            std::cout << "listening on " << address << std::endl;  // flushed: somebody waits for this line
        });
    });
}

void add_enroll(CLI::App& app, Result<>& result) {
    auto options = std::make_shared<EnrollOptions>();
    auto* command = app.add_subcommand("enroll", "Let somebody in: makes a key, prints what they paste");
    command->add_option("name", options->name, "Name for the account, e.g. a person's")->required();
    command->add_option("--address", options->address, "How clients reach this server (default: where it listens)")
        ->type_name("tcp://HOST:PORT");
    command->add_option("--state", options->state, "The server's folder, as given to serve")->type_name("DIR");
    command->add_flag("--replace", options->replace,
                      "Make the account's earlier key and its machines' worthless, and end what they run");
    command->callback([options, &result] { result = enroll(*options, std::cout); });
}

void add_keys(CLI::App& app, Result<>& result) {
    auto state = std::make_shared<std::string>();
    auto* command = app.add_subcommand("keys", "List the accounts and machines that may use the pool");
    command->add_option("--state", *state, "The server's folder, as given to serve")->type_name("DIR");
    command->callback([state, &result] { result = list_keys(*state, std::cout); });
}

void add_forget(CLI::App& app, Result<>& result) {
    auto name = std::make_shared<std::string>(), state = std::make_shared<std::string>();
    auto* command = app.add_subcommand(
        "forget", "Lock an account and its machines out, end what they run, and remove what is kept of them");
    command->add_option("name", *name, "The account's name, as `keys` lists it")->required();
    command->add_option("--state", *state, "The server's folder, as given to serve")->type_name("DIR");
    command->callback([name, state, &result] { result = forget_account(*name, *state, std::cout); });
}

void add_limit(CLI::App& app, Result<>& result) {
    auto options = std::make_shared<LimitOptions>();
    auto* command = app.add_subcommand("limit", "Say what an account may use at once, and its part when several wait");
    command->add_option("name", options->name, "The account's name, as `keys` lists it")->required();
    command->add_option("--gpus", options->gpus, "GPUs at once, of all types together; 0: as many as there are")
        ->check(CLI::Range(0, 1'000'000));
    command->add_option("--weight", options->weight, "Of two that wait, one with 2 gets twice as much (at first: 1)")
        ->check(CLI::Range(0.01, 100.0));
    command->add_option("--state", options->state, "The server's folder, as given to serve")->type_name("DIR");
    command->callback([options, &result] { result = limit_account(*options, std::cout); });
}

void add_prices(CLI::App& app, Result<>& result) {
    struct Options {
        std::string gpu, price, state;
        bool history = false;
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
    for (auto* each : {list, set, remove}) each->fallthrough();  // --state may stand behind them
    command->require_subcommand(0, 1);
    command->callback([=, &result] {
        if (*set)
            result = set_price(options->gpu, options->price, options->state, std::cout);
        else if (*remove)
            result = remove_price(options->gpu, options->state, std::cout);
        else
            result = list_prices(options->history, options->state, std::cout);
    });
}

// Not for people: what the supervisor starts (supervisor/child.hpp).
void add_hidden(CLI::App& app) {
    app.add_subcommand("worker", "")->group("")->callback([] {
        worker::run_worker(child_control_fd, child_listen_fd);
    });
    app.add_subcommand("probe-gpus", "")->group("")->callback([] { std::exit(run_probe(child_control_fd)); });
    auto bytes_max = std::make_shared<uint64_t>(0);
    auto* wipe = app.add_subcommand("wipe-gpu", "")->group("");
    wipe->add_option("bytes", *bytes_max);
    wipe->callback([bytes_max] { std::exit(run_wipe(child_control_fd, *bytes_max)); });
    auto path = std::make_shared<std::string>();
    auto bytes = std::make_shared<uint64_t>(0);
    auto* store_image = app.add_subcommand("store-image", "")->group("");
    store_image->add_option("path", *path);
    store_image->add_option("bytes", *bytes);
    store_image->callback(
        [path, bytes] { std::exit(run_store_image(child_control_fd, child_file_fd, *path, *bytes)); });
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
    CLI::App app{"Puts this machine's GPUs into a pool, for programs on machines without one.", "tnr-gpu-server"};
    app.footer(
        "Try it on one machine, without a GPU and without keys:\n"
        "  tnr-gpu-server serve --plain --emulate h100:2\n"
        "  tnr run --gpu h100 --pool tcp://127.0.0.1:14900 -- ./my_cuda_program\n"
        "For others, with encryption:\n"
        "  tnr-gpu-server serve --listen tcp://0.0.0.0:14900\n"
        "  tnr-gpu-server enroll alice        prints the line alice pastes\n");
    app.require_subcommand(1);
    tnr::Result<> result = tnr::Ok{};
    add_serve(app, result);
    add_enroll(app, result);
    add_keys(app, result);
    add_forget(app, result);
    add_limit(app, result);
    add_prices(app, result);
    app.add_subcommand("version", "Print the version")->callback([] {
        std::cout << "tnr-gpu-server " << tnr::control::version() << "\n";
    });
    add_hidden(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    return exit_code(result);
}
