// `tnr billing`: what machines have cost, as this computer saw it, and GPU time, as the pools have it in their ledgers,
// beside what the clouds say.
#include "api_client/base/interrupt.hpp"
#include "api_client/base/text.hpp"
#include "cli/budget_stop.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/listing.hpp"
#include "cli/money/bill.hpp"
#include "cli/money/budget.hpp"
#include "cli/overview.hpp"
#include "cli/ui/table.hpp"
#include "cli/ui/time.hpp"

#include <algorithm>
#include <cmath>

namespace tnr::cli {
namespace {

struct BillingOptions {
    std::string since = {}, until = {}, by = {};
    bool everyone = false;
    ListOptions list = {};
};

constexpr int chart_columns = 30;
const std::vector<Column> bill_columns = {{"name"}, {"running"}, {"stopped"}, {"gpu"}, {"cost"}};
const std::vector<Column> day_columns = {{"name"}, {"running"}, {"stopped"}, {"gpu"}, {"cost"}, {"chart"}};

std::string hours_text(double hours) {
    return hours > 0 ? ui::duration_text(std::llround(hours * 3600)) : "";
}

Row bill_row(const BillLine& line, bool chart, double most) {
    const Cost& cost = line.cost;
    Row row = {line.name, hours_text(cost.hours_running), hours_text(cost.hours_stopped), hours_text(cost.hours_gpu),
               money_text(cost)};
    if (!chart) return row;
    double amount = line.cost.amounts.empty() ? 0 : line.cost.amounts.begin()->second;
    row.push_back(most > 0 && amount > 0 ? bar(amount / most, chart_columns) : " ");
    return row;
}

// Bars of several currencies would be bars of nothing.
double longest_bar(const Bill& bill) {
    double most = 0;
    if (bill.total.amounts.size() == 1)
        for (const auto& line : bill.lines)
            for (const auto& [currency, amount] : line.cost.amounts) most = std::max(most, amount);
    return most;
}

nlohmann::json bill_json(const Bill& bill, const std::vector<CloudFigure>& figures,
                         const std::vector<BudgetUse>& budgets) {
    auto lines = nlohmann::json::array(), clouds = nlohmann::json::array(), uses = nlohmann::json::array(),
         pools = nlohmann::json::array();
    for (const auto& line : bill.lines) lines.push_back({{"name", line.name}, {"cost", cost_json(line.cost)}});
    for (const auto& figure : figures)
        clouds.push_back({{"provider", figure.provider},
                          {"currency", or_null(figure.costs.currency)},
                          {"ours_this_month", figure.ours},
                          {"theirs_this_month", optional_json(figure.costs.this_month)},
                          {"difference", optional_json(figure.difference())},
                          {"balance", optional_json(figure.costs.balance)},
                          {"source", or_null(figure.costs.source)},
                          {"date", or_null(figure.costs.date)}});
    for (const auto& pool : bill.pools)
        pools.push_back({{"address", pool.address},
                         {"also", pool.also},
                         {"claims", pool.claims},
                         {"cost", cost_json(pool.cost)},
                         {"bytes_up", pool.bytes_up},
                         {"bytes_down", pool.bytes_down},
                         {"busy_hours", static_cast<double>(pool.busy_ms) / 3.6e6},
                         {"wiped_bytes", pool.wiped_bytes},
                         {"wipe_checked_bytes", pool.wipe_checked_bytes},
                         {"silent", pool.silent}});
    for (const auto& use : budgets) uses.push_back(use_json(use));
    return {{"since", ui::utc_text(bill.since)},
            {"until", ui::utc_text(bill.until)},
            {"by", bill.by},
            {"lines", lines},
            {"total", cost_json(bill.total)},
            {"pools", pools},
            {"clouds", clouds},
            {"budgets", uses}};
}

// Why there is nothing in the bill.
std::string no_lines_text(const Bill& bill, const std::vector<PoolLedger>& ledgers) {
    if (!bill.total.partial) return "Nothing was spent, as far as this computer knows\n";
    const bool refused = std::all_of(ledgers.begin(), ledgers.end(), [](const PoolLedger& ledger) {
        return ledger.whole() || (!ledger.books && ledger.books.error().kind == Error::Kind::auth);
    });
    return refused ? "Unknown: you may not ask a pool for this\n"
                   : "Unknown: a pool does not tell what was used there\n";
}

void print_bill(Session& session, const BillingOptions& options, const Bill& bill,
                const std::vector<PoolLedger>& ledgers) {
    const bool chart = bill.by == "day";
    std::vector<Row> rows;
    for (const auto& line : bill.lines) rows.push_back(bill_row(line, chart, longest_bar(bill)));
    if (!bare(options.list)) rows.push_back(bill_row({"total", bill.total}, chart, 0));
    if (bill.lines.empty() && !bare(options.list))
        session.out << no_lines_text(bill, ledgers);
    else
        print_list(session.out, session.out_paint, options.list, chart ? day_columns : bill_columns, rows);
}

void print_figures(Session& session, const std::vector<CloudFigure>& figures) {
    if (figures.empty()) return;
    std::vector<Row> rows = {{"THIS MONTH", "OURS", "CLOUD SAYS", "DIFFERENCE", "BALANCE", "AS OF"}};
    for (const auto& figure : figures) {
        auto money = [&](const std::optional<double>& amount) {
            return amount ? money_text(figure.costs.currency, *amount) : "";
        };
        rows.push_back({figure.provider, money(figure.ours), money(figure.costs.this_month), money(figure.difference()),
                        money(figure.costs.balance), figure.costs.date.substr(0, 10)});
    }
    session.out << "\n";
    ui::print_table(session.out, rows, session.out_paint);
}

void print_budgets(Session& session, const std::vector<BudgetUse>& uses) {
    for (const auto& use : uses) {
        std::string text = use_text(use);
        if (use.share() >= 1) text = session.out_paint.bad(text);
        if (use.share() >= budget_warning_share && use.share() < 1) text = session.out_paint.doubtful(text);
        session.out << (&use == &uses.front() ? "\n" : "") << "Budget, " << text << "\n";
    }
}

// What nobody could have written down is said to be missing.
void tell_gaps(Session& session, const Bill& bill, bool everyone, const History::All& history) {
    for (const auto& pool : bill.pools)
        for (const auto& node : pool.silent)
            session.err << "note: node '" << node << "' of the pool at " << pool.address
                        << " does not answer: what was used there is missing\n";
    if (everyone) return;
    if (history.damaged > 0)
        session.err << "note: " << history.damaged << " lines of the history cannot be read and are left out\n";
    const auto& seen = history.sightings;
    if (seen.empty())
        session.err << "note: this computer has seen no machine yet; what other computers' machines cost is missing\n";
    else if (ui::seconds_of(seen.front().at).value_or(0) > bill.since)
        session.err << "note: this computer's history begins " << ui::age(seen.front().at, session.now())
                    << " ago; what was before, and what other computers' machines cost before they were seen here, is "
                       "missing\n";
}

// Of those that were asked for their ledgers.
void add_pool_troubles(Session& session, const std::vector<PoolLedger>& ledgers, std::vector<Trouble>& troubles) {
    for (const auto& ledger : ledgers) {
        if (ledger.books) continue;
        if (ledger.books.error().kind == Error::Kind::usage)
            session.err << "note: the pool at " << ledger.address
                        << " does not tell what was used there: its tnr-gpu-server is older than this tnr\n";
        else
            troubles.push_back({ledger.address, ledger.books.error()});
    }
}

Result<Bill> empty_bill(const BillingOptions& options, int64_t now) {
    Bill bill;
    bill.by = !options.by.empty() ? options.by : options.everyone ? "user" : "machine";
    const auto& groups = bill_groups();
    if (std::find(groups.begin(), groups.end(), bill.by) == groups.end())
        return Error{Error::Kind::usage, "nothing is summed by '" + bill.by + "'",
                     did_you_mean(bill.by, groups) + "--by takes machine, gpu, provider, day, tag or user"};
    auto until = options.until.empty() ? Result<int64_t>{now} : parse_when("--until", options.until, now);
    if (!until) return until.error();
    bill.until = std::clamp<int64_t>(*until, 0, now);  // pools know no times before 1970
    auto since =
        options.since.empty() ? Result<int64_t>{month_begin(bill.until)} : parse_when("--since", options.since, now);
    if (!since) return since.error();
    bill.since = std::max<int64_t>(*since, 0);
    if (bill.since <= bill.until) return bill;
    const bool future = bill.since > now;
    return Error{
        Error::Kind::usage, future ? "--since is in the future" : "--since is after --until",
        "it is " + ui::utc_text(now) + " now" +
            (future ? "" : "; --since is " + ui::utc_text(bill.since) + ", --until " + ui::utc_text(bill.until))};
}

Result<> billing(Session& session, const BillingOptions& options) {
    const int64_t now = ui::seconds_of(session.now()).value_or(0);
    const auto& columns = options.by == "day" ? day_columns : bill_columns;
    if (auto good = begin_list(session, options.list, columns); !good) return good;
    auto asked = empty_bill(options, now);
    if (!asked) return asked.error();
    auto overview = look_around(session);  // what has changed meanwhile goes into the history
    obey_budgets(session, overview);
    auto history = session.history().all();
    if (!history) return history.error();
    if (options.everyone) *history = {};  // this computer's machines are one user's
    auto budgets = session.budgets().all();
    if (!budgets) return budgets.error();
    if (options.everyone) budgets->clear();
    const int64_t from = std::min(asked->since, ledgers_since(*budgets, now).value_or(asked->since));
    auto ledgers = ask_pool_ledgers(session, from, options.everyone, {asked->since, asked->until});
    auto figures = options.everyone ? std::vector<CloudFigure>{}
                                    : cloud_figures(session, history->sightings, now, overview.troubles);
    if (interrupt::interrupted()) return interrupt::error();
    auto uses = uses_of(*budgets, history->sightings, ledgers, now);
    const Bill bill = bill_of(history->sightings, ledgers, asked->since, asked->until, asked->by, asked->until == now);
    std::erase_if(overview.troubles, [](const Trouble& each) { return each.about.rfind("tcp://", 0) == 0; });
    add_pool_troubles(session, ledgers, overview.troubles);
    if (session.json) {
        print_document(session, "billing", bill_json(bill, figures, uses), overview.troubles);
        return Ok{};
    }
    print_bill(session, options, bill, ledgers);
    if (!bare(options.list)) {
        print_figures(session, figures);
        print_budgets(session, uses);
    }
    tell_gaps(session, bill, options.everyone, *history);
    tell_troubles(session, overview.troubles);
    return Ok{};
}

}  // namespace

void add_billing(Grammar& tnr, Session& session) {
    auto options = std::make_shared<BillingOptions>();
    auto command = tnr.command("billing", "Show what your machines and GPUs have cost");
    command.option("--since", options->since,
                   "From then on: 2026-11-01, or 7d for seven days ago; unless told, the month of --until");
    command.option("--until", options->until, "Up to then, in the same forms; now unless told");
    command.option("--by", options->by, "What to sum up by: machine (unless told), gpu, provider, day, tag or user");
    command.flag("--everyone", options->everyone,
                 "What all users had of the pools' GPUs, by user unless told; for a pool's operator");
    add_list_options(command, options->list);
    command.footer(
        "Machine, disk and address, each hour at the price of then, also of machines that are deleted and of disks of\n"
        "stopped ones. tnr writes down each change that it sees (~/.local/state/tnr/history.jsonl); a change made\n"
        "elsewhere counts from when tnr first saw it. An unknown price is told as unknown, and currencies stay apart.\n"
        "GPU is the time that the pools' ledgers have for your account, each GPU counted by itself, at the pool's "
        "price of\n"
        "then; it is the pool's own account, so it is whole on every computer. --by gpu sums machines' costs by the "
        "GPU "
        "that\n"
        "they had, and GPU time by type. Clouds that tell their own figure of this month have it beside ours, with "
        "the\n"
        "difference: taxes, traffic, snapshots, machines that tnr did not make, a month's upper limit.\n"
        "Times and days are UTC, whatever TZ says, unless an offset is told: 2026-11-01T09:30+05:30.\n"
        "Ends with 1 when a cloud or a pool does not answer, and with 4 when one refuses you.\n\n"
        "Examples:\n"
        "  tnr billing\n"
        "  tnr billing --by day --since 14d\n"
        "  tnr billing --everyone --since 30d\n"
        "  tnr billing --by tag --since 2026-10-01 --until 2026-11-01 -o json");
    command.run([&session, options] { session.result = billing(session, *options); });
}

}  // namespace tnr::cli
