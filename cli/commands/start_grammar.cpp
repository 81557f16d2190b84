// `tnr start` on the command line.

#include "cli/commands/commands.hpp"
#include "cli/commands/start.hpp"

namespace tnr::cli {

void add_start(Grammar& tnr, Session& session) {
    auto options = std::make_shared<StartOptions>();  // CLI11 fills it while parsing, after we return
    auto command = tnr.command("start", "Create a machine and give it a GPU, or bring it up again");
    command.required("name", options->name, "What to call the machine");
    command.option("--gpu", options->gpu,
                   "GPU type, or TYPE:COUNT; unless told, what the machine has, or the pool's only type");
    command.option("--provider", options->provider,
                   "Who makes the machine; local (QEMU on this computer) unless told;\n"
                   "others need `tnr login`");
    command.option("--pool", options->pool, "Pool of GPUs, tcp://HOST:PORT; the one last signed in to unless told");
    command.option("--size", options->offer,
                   "The provider's word for a size of machine; at local: small, medium, large");
    command.option("--region", options->region, "The provider's word for a place; the cheapest unless told");
    command.option("--image", options->image, "Disk image to use instead of the provider's default");
    command.flag("--dry-run", options->dry_run, "Show what would happen and what it costs, change nothing");
    command.flag("--no-wait", options->no_wait,
                 "Return once the provider has accepted; `start` again waits and installs");
    command.footer(
        "Running it again is always safe: it continues where it stopped, starts a stopped machine, checks a\n"
        "running one, and with another --gpu changes its GPU without making it anew. The GPU itself is claimed\n"
        "when the first CUDA program starts there, and given back when the last one has ended.\n\n"
        "Examples:\n"
        "  tnr start demo                       where the pool has one type\n"
        "  tnr start demo --gpu h100\n"
        "  tnr start demo --gpu a100:2          two GPUs\n"
        "  tnr start demo --gpu h100 --dry-run");
    command.run([&session, options] { session.result = start(session, *options); });
}

}  // namespace tnr::cli
