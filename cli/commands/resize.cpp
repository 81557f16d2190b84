// `tnr resize`: another size for a machine that is there, with its disk.
#include <algorithm>

#include "api_client/base/interrupt.hpp"
#include "api_client/offers.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/waiting.hpp"
#include "cli/json_out.hpp"
#include "cli/own_gpu.hpp"
#include "cli/shopping.hpp"

namespace tnr::cli {
namespace {

struct ResizeOptions {
    std::string name, size, cpus, memory;
    bool restart = false;
};

// The one by its name, or the cheapest with at least so many CPUs and so much memory, where the machine is.
Result<std::string> wished_size(const ResizeOptions& options, const std::vector<Offer>& offers, const Machine& now) {
    bool by_amount = !options.cpus.empty() || !options.memory.empty();
    if (options.size.empty() == !by_amount)
        return Error{Error::Kind::usage, "say which size", "--size NAME, or --cpus N and --memory GIB"};
    if (!by_amount) {
        Order order;
        order.offer = options.size;
        order.region = now.region;
        auto offer = choose_offer(offers, order);
        return offer ? Result<std::string>{offer->name} : Result<std::string>{offer.error()};
    }
    auto cpus = size_wanted("--cpus", options.cpus), memory = size_wanted("--memory", options.memory);
    if (!cpus) return cpus.error();
    if (!memory) return memory.error();
    const Offer* best = nullptr;
    for (const auto& offer : offers) {
        bool fits = offer.cpus >= *cpus && offer.memory_mib >= *memory * 1024 && offer.gpu == now.gpu &&
                    offer.gpu_count == now.gpu_count && offer.available &&
                    (now.region.empty() || offer.region.empty() || offer.region == now.region);
        auto price = offer.price.running();
        bool cheaper = !best || (price && (!best->price.running() || *price < *best->price.running()));
        if (fits && cheaper) best = &offer;
    }
    if (best) return best->name;
    return Error{Error::Kind::usage, "no size there has so much", "`tnr offers` shows what there is"};
}

// The cloud's own words come first when it refuses; what is left to do comes with them.
Error with_next_step(Error error, const Record& record, bool restart) {
    if (restart)
        error.hint += std::string(error.hint.empty() ? "" : "\n") + "'" + record.name +
                      "' may be stopped now: `tnr start " + record.name + "` brings it back";
    return error;
}

Result<> change(Session& session, Known& known, const std::string& size, bool restart) {
    ui::Progress progress(session.screen());
    bool ran = known.machine.state == MachineState::running;
    const bool stops = ran && !known.provider->resizes_running();
    if (stops && !restart)
        return Error{
            Error::Kind::usage, "'" + known.record.name + "' runs; its size changes while it is stopped",
            "add --restart, which stops it and starts it again, or `tnr stop " + known.record.name + "` first"};
    if (stops) {
        progress.begin("stopping '" + known.record.name + "'");
        if (auto stopped = known.provider->stop(known.machine.id); !stopped) return stopped;
        known.machine.state = MachineState::stopping;
        if (auto stopped = wait_while(session, *known.provider, known.machine, MachineState::stopping); !stopped)
            return stopped;
        progress.end();
    }
    progress.begin("changing its size to " + size);
    if (auto resized = known.provider->resize(known.machine.id, size); !resized)
        return with_next_step(resized.error(), known.record, stops);
    progress.end();
    known.record.size = size;
    if (auto saved = session.records().save(known.record); !saved) return saved;
    if (ran && !stops) {
        progress.begin("waiting until it runs again");
        known.machine.state = MachineState::starting;
        auto running = wait_while(session, *known.provider, known.machine, MachineState::starting);
        if (!running) return running;
        take_own_gpu(known.record, known.machine);
        progress.end();
        return session.records().save(known.record);
    }
    if (!ran) return Ok{};
    progress.begin("starting it again");
    if (auto started = known.provider->start(known.machine.id); !started)
        return with_next_step(started.error(), known.record, true);
    progress.end();
    return Ok{};
}

Result<> resize(Session& session, const ResizeOptions& options) {
    if (auto good = check_machine_name(options.name); !good) return good;
    auto lock = session.records().lock(options.name);
    if (!lock) return lock.error();
    auto known = find_machine(session, options.name);
    if (!known) return known.error();
    auto offers = known->provider->offers();
    if (!offers) return offers.error();
    auto size = wished_size(options, *offers, known->machine);
    if (!size) return size.error();
    if (auto changed = change(session, *known, *size, options.restart); !changed) return changed;
    auto machine = known->provider->machine(known->machine.id);
    if (!machine) return machine.error();
    if (session.json) {
        print_document(session, "resize", {{"machine", machine_json(known->record, *machine, "")}, {"size", *size}});
        return Ok{};
    }
    session.out << "'" << options.name << "' is " << *size << " now (machine: " << price_text(machine->price) << ")\n";
    return Ok{};
}

}  // namespace

void add_resize(Grammar& tnr, Session& session) {
    auto options = std::make_shared<ResizeOptions>();
    auto command = tnr.command("resize", "Give a machine another size and keep its disk");
    command.required("name", options->name, "The machine, as `tnr status` shows it");
    command.option("--size", options->size, "The provider's word for the size");
    command.option("--cpus", options->cpus, "Instead: the cheapest size with at least so many CPUs");
    command.option("--memory", options->memory, "and at least so many GiB of memory");
    command.flag("--restart", options->restart, "Stop a running machine for it, and start it again");
    command.footer(
        "A disk never shrinks. The GPU is not the machine's size: `tnr start demo --gpu TYPE` changes that.\n"
        "At a cloud with GPUs of its own, as Thunder, a size names the GPU as well, and changes while the machine "
        "runs.\n\n"
        "Examples:\n  tnr resize demo --size medium\n  tnr resize demo --cpus 8 --memory 32 --restart\n"
        "  tnr resize at-thunder --size h100_x2_production");
    command.run([&session, options] { session.result = resize(session, *options); });
}

}  // namespace tnr::cli
