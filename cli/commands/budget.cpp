// `tnr budget`: how much may be spent. `start` warns at 80 % and refuses at 100 %, where idle machines go off, too.
#include "cli/money/budget.hpp"

#include <algorithm>

#include "api_client/base/text.hpp"
#include "cli/budget_stop.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/ui/text.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

Result<> tell_budgets(Session& session, const std::string& command, const std::string& words) {
    auto budgets = session.budgets().all();
    if (!budgets) return budgets.error();
    auto history = session.history().all();
    if (!history) return history.error();
    const int64_t now = ui::seconds_of(session.now()).value_or(0);
    auto uses = uses_of(*budgets, history->sightings, ledgers_for(session, *budgets, now), now);
    if (session.json) {
        auto list = nlohmann::json::array();
        for (const auto& use : uses) list.push_back(use_json(use));
        print_document(session, command, {{"budgets", list}});
        return Ok{};
    }
    session.out << words;
    if (uses.empty()) session.out << "No budget is set. `tnr budget set 50/month` sets one\n";
    for (const auto& use : uses) session.out << use_text(use) << "\n";
    return Ok{};
}

// Providers, and the pools that one is signed in to.
Result<> known_provider(Session& session, const std::string& name) {
    auto names = session.provider_names;
    auto logins = session.logins().all();
    for (const auto& login : logins ? *logins : std::vector<PoolLogin>{}) names.push_back(login.address);
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return Ok{};
    return Error{Error::Kind::usage, "there is no provider '" + name + "'",
                 did_you_mean(name, names) + "providers: " + comma_separated(names)};
}

// Machines hear now what they would hear from the next `tnr status`. A cloud that does not answer is that one's to tell.
void obey_now(Session& session) {
    if (session.records().all().records.empty()) return;
    auto overview = look_around(session);
    obey_budgets(session, overview);
}

Result<> set_budget(Session& session, const std::string& text, const std::string& provider) {
    auto budget = parse_budget(text);
    if (!budget) return budget.error();
    if (auto known = known_provider(session, provider); !known) return known;
    budget->provider = provider;
    if (auto set = session.budgets().set(*budget); !set) return set;
    obey_now(session);
    return tell_budgets(session, "budget set", "");
}

Result<> remove_budget(Session& session, const std::string& provider) {
    if (auto removed = session.budgets().remove(provider); !removed) return removed;
    obey_now(session);
    return tell_budgets(session, "budget remove", "Removed it\n");
}

}  // namespace

void add_budget(Grammar& tnr, Session& session) {
    auto budget = tnr.command("budget", "Say how much may be spent");
    budget.requires_command();
    budget.footer(
        "From 80 % on `tnr start` and `tnr run` warn; at 100 % they start nothing more, unless you say\n"
        "--over-budget. A machine that idles then switches itself off after 15 minutes, or sooner where its\n"
        "--idle-stop says so; one that was started with --over-budget does not. Each is told when its budget will be\n"
        "used up as things cost now, so this happens while this computer is off, too; `tnr status` tells it what has\n"
        "changed. A machine at work is not stopped, and programs on it are not refused. What counts is what\n"
        "`tnr billing` shows: the machines, as this computer saw them, and the GPU time in the pools' ledgers.\n"
        "--provider takes a provider, for its machines, or a pool's address, for its GPUs; a budget without it is\n"
        "for all together. Days and months are UTC's. A budget without a currency holds for each currency by\n"
        "itself, since none is ever converted.\n\n"
        "Examples:\n"
        "  tnr budget set 50/month\n"
        "  tnr budget set 20EUR/month --provider hetzner\n"
        "  tnr budget set 10USD/day --provider tcp://gpu-node:14900\n"
        "  tnr budget show\n"
        "  tnr budget remove --provider hetzner");
    auto text = std::make_shared<std::string>(), provider = std::make_shared<std::string>();
    auto set = budget.command("set", "Set a budget, instead of the one before");
    set.required("amount", *text, "50/month, 20EUR/month, 2USD/day");
    set.option("--provider", *provider,
               "For this provider's machines, or this pool's GPUs; for all together unless told");
    set.footer("Example:\n  tnr budget set 20EUR/month --provider hetzner");
    set.run([&session, text, provider] { session.result = set_budget(session, *text, *provider); });
    auto show = budget.command("show", "Show the budgets, and how much of them is used");
    show.run([&session] { session.result = tell_budgets(session, "budget show", ""); });
    auto remove = budget.command("remove", "Remove a budget");
    remove.option("--provider", *provider, "The one for this provider or pool; the one for all unless told");
    remove.run([&session, provider] { session.result = remove_budget(session, *provider); });
}

}  // namespace tnr::cli
