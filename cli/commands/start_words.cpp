// See start_words.hpp.
#include "cli/commands/start_words.hpp"

#include "cli/timers.hpp"

namespace tnr::cli {
namespace {

// As well as it is known: not every provider tells a machine's size.
std::string size_of(const Record& old, const Machine& machine, Provider& provider) {
    if (!machine.offer.empty()) return machine.offer;
    if (!old.size.empty()) return old.size;
    auto offers = provider.offers();
    return offers && !offers->empty() ? offers->front().name : "";
}

}  // namespace

Result<> keeps_its_shape(const Record& old, const Record& wanted, const Machine& machine, Provider& provider) {
    auto differs = [&](const char* what, const std::string& has) {
        return Error{
            Error::Kind::usage,
            "'" + wanted.name + "' exists and was made " +
                (has.empty() ? std::string("without --") + what : std::string("with the ") + what + " '" + has + "'"),
            "a machine keeps it: choose another name, or `tnr delete " + wanted.name + "` first"};
    };
    if (wanted.size != old.size)
        if (auto size = size_of(old, machine, provider); wanted.size != size) return differs("size", size);
    if (wanted.region != old.region && wanted.region != machine.region) return differs("region", machine.region);
    if (wanted.image != old.image) return differs("image", old.image);
    return Ok{};
}

Result<> keeps_own_gpu(const Record& wanted, const Machine& machine) {
    if (machine.gpu.empty() || (wanted.gpu == machine.gpu && wanted.count == machine.gpu_count)) return Ok{};
    return Error{Error::Kind::usage,
                 "'" + wanted.name + "' has " + std::to_string(machine.gpu_count) + " x " + machine.gpu + ", " +
                     wanted.provider + "'s own",
                 "`tnr resize " + wanted.name + " --size SIZE` changes it; `tnr offers --provider " + wanted.provider +
                     "` shows sizes"};
}

Error has_no_pool(const Record& record, const std::string& pool) {
    return {
        Error::Kind::usage,
        "--pool " + pool + ": machines at " + record.provider + " have GPUs of their own, and take none from a pool",
        "leave --pool out, or choose another --provider"};
}

Error stays_on(const Record& record) {
    return {Error::Kind::usage,
            record.provider + " cannot stop a machine or start it again, so none may switch itself off there",
            "add `--idle-stop off --ttl off`, and `tnr delete " + record.name + "` when you are done"};
}

Error ended_while_booting(const std::optional<Machine>& machine) {
    return {Error::Kind::remote, "the machine has ended while it was booting: it is " +
                                     (machine ? to_string(machine->state) : std::string("gone"))};
}

nlohmann::json gpus_json(const std::vector<SeenGpu>& gpus) {
    auto list = nlohmann::json::array();
    for (const auto& gpu : gpus) list.push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
    return list;
}

Error name_is_taken(const Record& record) {
    return {Error::Kind::usage,
            "a machine called '" + record.name + "' exists at provider " + record.provider +
                " already: it was made by another computer, or its record was lost",
            "choose another name, or remove it with `tnr delete " + record.name + "`"};
}

std::string size_text(const Offer& offer) {
    return offer.name + (offer.region.empty() ? "" : " in " + offer.region) + ", ";
}

std::string month_text(const Price& price) {
    auto month = price.monthly();
    return month && *month > 0 ? ", " + price_text(price.currency, month, " a month") : "";
}

std::string gpu_price_text(Pool& pool, const Record& record) {
    auto types = pool.types();
    for (const auto& type : types ? *types : std::vector<GpuType>{})
        if (type.name == record.gpu && type.per_hour)
            return price_text(type.currency, *type.per_hour * record.count) + " while it is used";
    return "price unknown";
}

std::string gpus_text(const std::vector<SeenGpu>& gpus) {
    std::string words;
    for (const auto& gpu : gpus)
        words += (words.empty() ? "" : "; ") + gpu.name + ", " + ui::bytes_text(static_cast<double>(gpu.memory_bytes));
    return words;
}

std::string plan_text(const Record& record, const std::string& size, const Price& price, Pool* pool) {
    const std::string gpus = !pool
                                 ? " of its own, which the price includes"
                                 : " from the pool at " + record.pool + " (GPU: " + gpu_price_text(*pool, record) + ")";
    return (size.empty() ? "Would bring up '" : "Would create '") + record.name + "' at provider " + record.provider +
           " (machine: " + size + price_text(price) + month_text(price) + "), with " + std::to_string(record.count) +
           " x " + record.gpu + gpus + ". Nothing was changed.\n";
}

Order order_of(const Record& record, bool own_gpus) {
    Order order;
    order.name = record.name;
    order.offer = record.size;
    order.region = record.region;
    order.image = record.image;
    if (own_gpus) {
        order.gpu = record.gpu;
        order.gpu_count = record.count;
    }
    return order;
}

void tell_started(Session& session, const Record& record, const Machine& machine, const Provider& provider,
                  const HowStarted& how) {
    const std::string& name = record.name;
    const std::string price = " (machine: " + price_text(machine.price) + ")";
    if (how.no_wait) {
        session.out << "'" << name << "' is " << to_string(machine.state) << price << "; `tnr start " << name
                    << "` waits and installs\n";
        return;
    }
    session.out << "'" << name << "' " << (how.was_running ? "was already running; checked" : "is running") << ": "
                << record.count << " x " << record.gpu << price << "\n";
    auto timers = timers_text(record, provider, machine.price);
    if (!timers.empty()) session.out << "  " << timers << "\n";
    session.out << "  get in:  tnr connect " << name << "\n  copy to: tnr sync FILE " << name
                << ":\n  remove:  tnr delete " << name << "\n";
}

Error with_what_exists(Error error, const Record& record, const Machine& machine) {
    std::string words;
    if (record.step >= Step::ordered)
        words = "the machine '" + record.name + "' " + (machine.id.empty() ? "may exist" : "exists") + " at provider " +
                record.provider + " (" + price_text(machine.price) + "): `tnr start " + record.name +
                "` continues, `tnr delete " + record.name + "` removes it";
    else if (!record.created.empty())  // its file was begun
        words = "no machine was made: `tnr start " + record.name + "` continues, `tnr delete " + record.name +
                "` forgets it";
    if (!words.empty()) error.hint = error.hint.empty() ? words : error.hint + "\n" + words;
    return error;
}

}  // namespace tnr::cli
