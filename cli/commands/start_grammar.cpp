// `tnr start` on the command line.

#include "cli/commands/commands.hpp"
#include "cli/commands/start.hpp"
#include "cli/config.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {

Result<StartOptions> with_defaults(Session& session, StartOptions options) {
    if (session.records().exists(options.name)) return options;
    auto own = default_of(session, "provider");
    if (!own) return own.error();
    // Places and sizes are one provider's words; whoever says what a machine shall have, or that it shall be the cheapest
    // anywhere, has chosen.
    bool there = (options.provider.empty() || options.provider == own->value) && !options.cheapest;
    for (auto [name, option] :
         {std::pair<const char*, std::string*>{options.cheapest ? "" : "provider", &options.provider},
          {"gpu", &options.gpu},
          {"pool", &options.pool},
          {"idle-stop", &options.idle_stop},
          {"ttl", &options.ttl},
          {there ? "region" : "", &options.region},
          {there && !options.wants.any() ? "size" : "", &options.offer}})
        if (*name)
            if (auto filled = default_to(session, name, *option); !filled) return filled.error();
    return options;
}

namespace {

// The GPU's name, or with a number behind it.
std::string free_name(Session& session, const std::string& gpu) {
    std::string name = gpu;
    for (int number = 2; session.records().exists(name); ++number) name = gpu + "-" + std::to_string(number);
    return name;
}

}  // namespace

Result<StartOptions> in_our_words(Session& session, StartOptions options) {
    if (options.mode.empty() && options.num_gpus.empty()) return options;
    const std::string gpu = ui::lower(options.gpu) == "a100" ? "a100xl" : ui::lower(options.gpu);
    if (gpu.empty() || gpu.find(':') != std::string::npos)
        return Error{Error::Kind::usage, "--mode and --num-gpus need a --gpu without a number of its own",
                     "`--gpu h100 --num-gpus 2 --mode production`; here it is also called `--gpu h100:2`"};
    const std::string count = options.num_gpus.empty() ? "1" : options.num_gpus;
    options.gpu = gpu + ":" + count;
    if (options.mode.empty()) return options;
    if (options.provider.empty()) options.provider = "thunder";  // nobody else has modes
    if (options.offer.empty()) options.offer = gpu + "_x" + count + "_" + ui::lower(options.mode);
    if (options.name.empty()) options.name = free_name(session, gpu);
    return options;
}

void add_start(Grammar& tnr, Session& session) {
    auto options = std::make_shared<StartOptions>();  // CLI11 fills it while parsing, after we return
    auto command = tnr.command("start", "Create a machine and give it a GPU, or bring it up again");
    command.alias("create");
    command.option("name", options->name, "What to call the machine");
    command.option("--gpu", options->gpu,
                   "GPU type, or TYPE:COUNT; unless told, what the machine has, or the pool's only type");
    command.option("--provider", options->provider,
                   "Who makes the machine; local (QEMU on this computer) unless told;\n"
                   "others need `tnr login`");
    command.option("--pool", options->pool, "Pool of GPUs, tcp://HOST:PORT; the one last signed in to unless told");
    command.option("--mode", options->mode, "A mode of Thunder's, as the original tnr has it: prototyping, production");
    command.option("--num-gpus", options->num_gpus, "As the original tnr has it: --gpu TYPE:COUNT");
    command.option("--size", options->offer,
                   "The provider's word for a size of machine; at local: small, medium, large");
    command.option("--region", options->region, "The provider's word for a place; the cheapest unless told");
    command.option("--image,--template", options->image,
                   "A snapshot, or a disk image, to use instead of the provider's default");
    command.option("--setup", options->setup,
                   "A script that runs once on a new machine, as its user; one that failed, again");
    command.option("--idle-stop", options->idle_stop,
                   "Switch it off when nobody has used it for so long: 30m, 2h; off ends that");
    command.option("--ttl", options->ttl, "Switch it off so long after this start: 8h, 2d; off ends that");
    command.option("--cpus,--vcpus", options->wants.cpus,
                   "A new machine's CPUs, at least: the cheapest size that has them");
    command.option("--memory", options->wants.memory, "Its memory in GiB, at least");
    command.option("--disk,--disk-size-gb", options->wants.disk, "Its disk in GiB, at least");
    command.option("--max-price", options->wants.max_price, "What it may cost an hour: 0.05 or 0.05EUR");
    command.flag("--cheapest", options->cheapest,
                 "The cheapest there is, of --provider or of all clouds you are signed in to");
    command.options("--tag", options->tags, "KEY=VALUE to find it by in `tnr billing --by tag`; may be repeated");
    command.flag("-y,--yes", options->yes, "Ask nothing");
    command.flag("--over-budget", options->over_budget,
                 "Start it although the budget is used up (`tnr budget`), and let it idle then");
    command.flag("--dry-run", options->dry_run, "Show what would happen and what it costs, change nothing");
    command.flag("--no-wait", options->no_wait,
                 "Return once the provider has accepted; `start` again waits and installs");
    command.footer(
        "Running it again is always safe: it continues where it stopped, starts a stopped machine, checks a\n"
        "running one, and with another --gpu changes its GPU without making it anew. The GPU itself is claimed\n"
        "when the first CUDA program starts there, and given back when the last one has ended.\n\n"
        "Without options on a terminal it asks which GPU and which machine, a price beside each; in a script it never\n"
        "asks.\n\n"
        "--idle-stop and --ttl are obeyed by the machine itself, also while this computer is off. In use is a machine\n"
        "with an SSH session, a program that uses its GPU, or a load of 0.3. `start` again changes them.\n\n"
        "Examples:\n"
        "  tnr start demo                       where the pool has one type\n"
        "  tnr start demo --gpu h100\n"
        "  tnr start demo --gpu a100:2          two GPUs\n"
        "  tnr start demo --gpu h100 --setup ./packages.sh --idle-stop 30m --ttl 8h\n"
        "  tnr start demo --gpu h100 --dry-run\n"
        "  tnr start demo --provider thunder --gpu a100xl      a GPU of the cloud's own; no pool is needed\n"
        "  tnr create --mode prototyping --gpu a100 --vcpus 8        the same in the words of Thunder's original tnr\n"
        "  tnr start 0                          take over instance 0, which the original tnr has made\n"
        "  tnr start demo --gpu h100 --cheapest --cpus 4 --memory 16 --max-price 0.05EUR --tag project=x --yes");
    command.run([&session, options] { session.result = start(session, *options); });
}

}  // namespace tnr::cli
