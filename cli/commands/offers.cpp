// `tnr offers`: machines that could be ordered, at all clouds one is signed in to.
#include "api_client/base/interrupt.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/listing.hpp"
#include "cli/shopping.hpp"

namespace tnr::cli {
namespace {

constexpr size_t offers_shown_max = 40;  // large clouds have thousands; whoever wants them all says so

struct OffersOptions {
    Wants wants = {};
    ListOptions list = {};
};

const std::vector<Column> offer_columns = {{"name"}, {"provider"}, {"region"}, {"cpus"},    {"memory"},
                                           {"disk"}, {"gpu"},      {"price"},  {"a_month"}, {"source", true}};

Row offer_row(const FoundOffer& found) {
    const Offer& offer = found.offer;
    const Price& price = offer.price;
    return {offer.name,
            found.provider,
            offer.region,
            std::to_string(offer.cpus),
            ui::bytes_text(offer.memory_mib * 1048576.0),
            std::to_string(offer.disk_gib) + " GiB",
            offer.gpu.empty() ? "" : offer.gpu + ":" + std::to_string(offer.gpu_count),
            price_text(price),
            price_text(price.currency, price.monthly(), ""),
            price.source};
}

nlohmann::json offer_json(const FoundOffer& found) {
    const Offer& offer = found.offer;
    return {{"name", offer.name},
            {"provider", found.provider},
            {"region", or_null(offer.region)},
            {"cpus", offer.cpus},
            {"memory_mib", offer.memory_mib},
            {"disk_gib", offer.disk_gib},
            {"gpu", gpu_json(offer.gpu, offer.gpu_count)},
            {"price", price_json(offer.price)}};
}

Result<> offers(Session& session, const OffersOptions& options) {
    if (auto good = begin_list(session, options.list, offer_columns); !good) return good;
    auto found = find_offers(session, options.wants);
    if (interrupt::interrupted()) return interrupt::error();
    if (!found) return found.error();
    if (session.json) {
        auto list = nlohmann::json::array();
        for (const auto& each : found->offers) list.push_back(offer_json(each));
        print_document(session, "offers", {{"offers", list}}, found->troubles);
        return Ok{};
    }
    std::vector<Row> rows;
    const bool short_list = options.list.format.empty() && options.list.columns.empty();
    for (const auto& each : found->offers)
        if (!short_list || rows.size() < offers_shown_max) rows.push_back(offer_row(each));
    if (!rows.empty() || bare(options.list))
        print_list(session.out, session.out_paint, options.list, offer_columns, rows);
    else
        session.out << "No offers. `tnr whoami` shows where you are signed in\n";
    if (rows.size() < found->offers.size())
        session.err << "note: " << found->offers.size() - rows.size() << " more; `-o wide` shows them all\n";
    tell_troubles(session, found->troubles);
    return Ok{};
}

}  // namespace

void add_offers(Grammar& tnr, Session& session) {
    auto options = std::make_shared<OffersOptions>();
    auto command = tnr.command("offers", "Show the machines that can be ordered, cheapest first");
    command.option("--provider", options->wants.provider, "Only there");
    command.option("--region", options->wants.region, "Only in this region, by the provider's word");
    command.option("--cpus", options->wants.cpus, "At least so many CPUs");
    command.option("--memory", options->wants.memory, "At least so many GiB of memory");
    command.option("--disk", options->wants.disk, "At least so many GiB of disk");
    command.option("--max-price", options->wants.max_price, "At most that much an hour: 0.05 or 0.05EUR");
    add_list_options(command, options->list);
    command.footer(
        "Of all clouds that you are signed in to, asked at once. Prices are the clouds' own, with the disk and the\n"
        "address that come with the machine; A MONTH is 730 hours or the cloud's own figure. Currencies are never\n"
        "converted: what is free comes first, then each currency from its cheapest, then what has no known price.\n"
        "Ends with 1 when one cloud does not answer, and with 4 when one refuses you; the others' are shown.\n\n"
        "Examples:\n"
        "  tnr offers\n"
        "  tnr offers --cpus 4 --memory 16 --max-price 0.05EUR\n"
        "  tnr offers --provider hetzner --region fsn1 -o json");
    command.run([&session, options] { session.result = offers(session, *options); });
}

}  // namespace tnr::cli
