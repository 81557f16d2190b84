// See start_choice.hpp.
#include "cli/commands/start_choice.hpp"

#include <charconv>

#include "cli/ask.hpp"
#include "cli/same_pool.hpp"

namespace tnr::cli {
namespace {

constexpr size_t choices_max = 12;  // more than that nobody reads; --size takes any

// One question to whoever sits there. Enter takes the first.
class Asking {
public:
    explicit Asking(Session& session) : session_(session) {}

    Result<std::string> line(const std::string& question) {
        auto answer = ask(session_, question + " ");
        if (!answer) return answer.error();
        if (!*answer) return Error{Error::Kind::usage, "nothing was chosen"};
        return **answer;
    }
    Result<std::string> machine_name() {
        for (;;) {
            auto name = line("What shall the machine be called?");
            if (!name) return name;
            auto good = check_machine_name(*name);
            if (good) return name;
            session_.err << good.error().hint << "\n";
        }
    }
    Result<size_t> one_of(const std::string& question, const std::vector<std::string>& choices) {
        session_.err << question << "\n";
        for (size_t i = 0; i < choices.size(); ++i) session_.err << "  " << i + 1 << ") " << choices[i] << "\n";
        for (;;) {
            auto answer = line("1-" + std::to_string(choices.size()) + " [1]:");
            if (!answer) return answer.error();
            if (answer->empty()) return size_t{0};
            size_t number = 0;
            auto [rest, wrong] = std::from_chars(answer->data(), answer->data() + answer->size(), number);
            if (wrong == std::errc{} && !*rest && number >= 1 && number <= choices.size()) return number - 1;
            session_.err << "a number from 1 to " << choices.size() << " chooses, Enter alone takes the first\n";
        }
    }

private:
    Session& session_;
};

bool is_new(Session& session, const std::string& name) {
    auto record = session.records().find(name);
    return record && (!*record || (*record)->step < Step::ordered);
}

// Nothing was said about what to make.
bool leaves_all_open(const StartOptions& options) {
    return (options.gpu + options.provider + options.offer + options.region + options.image).empty() &&
           !options.cheapest && !options.wants.any();
}

// Where a cloud says nothing, what it has may be cheaper.
void tell_silent(Session& session, const Found& found, StartOptions& options) {
    for (const auto& trouble : found.troubles) {
        session.err << "note: " << trouble.about
                    << " did not tell its offers, and may have cheaper ones: " << ui::plain(trouble.error.what) << "\n";
        options.silent.push_back(trouble.about);
    }
}

Result<> choose_cheapest(Session& session, StartOptions& options) {
    Wants wants = options.wants;
    wants.provider = !options.provider.empty() || options.cheapest ? options.provider : "local";
    wants.region = options.region;
    wants.own_gpu = options.gpu;
    auto found = find_offers(session, wants);
    if (!found) return found.error();
    // A size by its name is one that was chosen already; its price still counts.
    // A mode (of Thunder's) leaves open how many CPUs, which then are part of the size's name.
    auto is_meant = [&](const std::string& size) {
        return size == options.offer || (!options.mode.empty() && size.starts_with(options.offer + "_"));
    };
    if (!options.offer.empty())
        std::erase_if(found->offers, [&](const FoundOffer& each) { return !is_meant(each.offer.name); });
    auto best = cheapest(*found, wants);
    if (!best) return best.error();
    tell_silent(session, *found, options);
    session.err << "Cheapest: " << offer_text(*best) << "\n";
    options.provider = best->provider;
    options.offer = best->offer.name;
    options.region = best->offer.region;
    return Ok{};
}

Result<> ask_gpu(Session& session, StartOptions& options) {
    auto opened = open_pool(session, options.pool);
    if (!opened) return opened.error();
    auto types = opened->pool->types();
    if (!types) return types.error();
    if (types->size() < 2) return Ok{};
    std::vector<std::string> choices;
    for (const auto& type : *types)
        choices.push_back(type.name + ", " + ui::bytes_text(static_cast<double>(type.memory_bytes)) + ", " +
                          std::to_string(type.free) + " of " + std::to_string(type.total) + " free, " +
                          price_text(type.currency, type.per_hour));
    auto chosen = Asking(session).one_of("Which GPU?", choices);
    if (!chosen) return chosen.error();
    options.gpu = (*types)[*chosen].name;
    return Ok{};
}

// At this computer alone there is nothing to choose, and nothing to pay.
Result<> ask_machine(Session& session, StartOptions& options) {
    auto found = find_offers(session, {});
    if (!found) return found.error();
    std::vector<const FoundOffer*> shown;
    std::map<std::string, size_t> by_provider;
    for (const auto& each : found->offers)
        if (!each.brings_gpus && ++by_provider[each.provider] <= choices_max / 2 && shown.size() < choices_max)
            shown.push_back(&each);
    if (by_provider.size() < 2 && by_provider.count("local")) return Ok{};
    if (shown.size() < 2) return Ok{};
    tell_silent(session, *found, options);
    std::vector<std::string> choices;
    for (const auto* each : shown) choices.push_back(offer_text(*each));
    auto chosen = Asking(session).one_of("Which machine? (`tnr offers` shows all)", choices);
    if (!chosen) return chosen.error();
    options.provider = shown[*chosen]->provider;
    options.offer = shown[*chosen]->offer.name;
    options.region = shown[*chosen]->offer.region;
    return Ok{};
}

}  // namespace

Result<StartOptions> complete_options(Session& session, const StartOptions& options) {
    StartOptions complete = options;
    const bool may_ask = session.in_is_terminal && !options.yes && !session.json;
    if (complete.name.empty() && !may_ask)
        return Error{Error::Kind::usage, "`tnr start` needs NAME (what to call the machine)",
                     "`tnr start --help` shows what there is"};
    if (complete.name.empty()) {
        auto name = Asking(session).machine_name();
        if (!name) return name.error();
        complete.name = *name;
    }
    if (auto good = check_machine_name(complete.name); !good) return good.error();
    const bool chooses = options.cheapest || options.wants.any();
    if (!is_new(session, complete.name)) {
        if (chooses)
            session.err << "note: '" << complete.name << "' exists and keeps its size; --cpus, --memory, --disk, "
                        << "--cheapest and --max-price are for new machines\n";
        return complete;
    }
    if (chooses) {
        if (auto chosen = choose_cheapest(session, complete); !chosen) return chosen.error();
    } else if (may_ask && leaves_all_open(options)) {
        if (auto asked = ask_gpu(session, complete); !asked) return asked.error();
        if (auto asked = ask_machine(session, complete); !asked) return asked.error();
    }
    return complete;
}

Result<std::map<std::string, std::string>> parse_tags(const std::vector<std::string>& tags) {
    std::map<std::string, std::string> parsed;
    for (const auto& tag : tags) {
        size_t sign = tag.find('=');
        if (sign == std::string::npos || sign == 0)
            return Error{Error::Kind::usage, "'" + tag + "' is no tag", "it looks like `--tag project=x`"};
        parsed[tag.substr(0, sign)] = tag.substr(sign + 1);
    }
    return parsed;
}

}  // namespace tnr::cli
