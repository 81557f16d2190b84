// See shopping.hpp.
#include "cli/shopping.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "api_client/base/text.hpp"
#include "cli/side_by_side.hpp"

namespace tnr::cli {
namespace {

constexpr int default_cpus = 2,
              default_memory_gib = 4;  // Python with PyTorch takes 2 GiB before it has loaded anything

// A number and the word behind it: "8", "8GiB", "0.05EUR".
struct Amount {
    double number = 0;
    std::string unit;
};
std::optional<Amount> parse_amount(const std::string& text) {
    Amount amount;
    size_t begin = !text.empty() && text[0] == '$' ? 1 : 0;
    const auto leading = ui::leading_number(std::string_view(text).substr(begin));
    if (!leading || leading->number > 1e9) return std::nullopt;
    amount.number = leading->number;
    amount.unit = begin ? "USD" : std::string(leading->rest);
    amount.unit.erase(0, amount.unit.find_first_not_of(' '));
    return amount;
}

struct ClearWants {
    double cpus = 0, memory_gib = 0, disk_gib = 0;
    std::optional<double> max_price = {};
    std::string currency = {};  // of max_price; empty: any
};

Result<ClearWants> understand(const Wants& wants) {
    auto cpus = size_wanted("--cpus", wants.cpus), memory = size_wanted("--memory", wants.memory),
         disk = size_wanted("--disk", wants.disk);
    for (const auto* each : {&cpus, &memory, &disk})
        if (!*each) return each->error();
    ClearWants clear{*cpus, *memory, *disk};
    if (wants.max_price.empty()) return clear;
    auto amount = parse_amount(wants.max_price);
    if (!amount)
        return Error{Error::Kind::usage, "--max-price is no price: '" + wants.max_price + "'",
                     "by the hour: `--max-price 0.05` or `--max-price 0.05EUR`"};
    clear.max_price = amount->number;
    clear.currency = ui::upper(amount->unit);
    return clear;
}

// Vendors' gigabytes are of 1000 or of 1024 megabytes; nobody means the difference.
constexpr double gib_of_vendors = 1000.0 / 1024;

bool suits(const Offer& offer, const Wants& wants, const ClearWants& clear) {
    if (!offer.available || (!wants.region.empty() && offer.region != wants.region)) return false;
    if (offer.cpus < clear.cpus || offer.memory_mib < clear.memory_gib * 1024 * gib_of_vendors ||
        offer.disk_gib < clear.disk_gib * gib_of_vendors)
        return false;
    if (!clear.max_price) return true;
    auto price = offer.price.running();
    const bool right_money = clear.currency.empty() || offer.price.currency == clear.currency || price == 0.0;
    return price && *price <= *clear.max_price && right_money;
}

auto rank(const FoundOffer& found) {
    const Offer& offer = found.offer;
    auto price = offer.price.running();
    return std::tuple(!price, price == 0.0 ? std::string() : offer.price.currency, price.value_or(0), offer.memory_mib,
                      found.provider, offer.name, offer.region);
}

struct AskedShop {
    std::string name;
    std::unique_ptr<Provider> provider = {};
    Result<std::vector<Offer>> offers = std::vector<Offer>{};
};

bool suits_programs(const Offer& offer, const Wants& wants) {
    return (!wants.cpus.empty() || offer.cpus >= default_cpus) &&
           (!wants.memory.empty() || offer.memory_mib >= default_memory_gib * 1024 * gib_of_vendors);
}

// A machine with GPUs of its own is for those who ask for its provider.
bool has_wanted_gpu(const FoundOffer& found, const Wants& wants) {
    if (!found.brings_gpus) return true;
    if (wants.provider.empty() || wants.own_gpu.empty()) return !wants.provider.empty();
    auto wish = parse_gpu(wants.own_gpu);
    return wish && ui::lower(found.offer.gpu) == wish->type && found.offer.gpu_count == wish->count;
}

}  // namespace

Result<Found> find_offers(Session& session, const Wants& wants) {
    auto clear = understand(wants);
    if (!clear) return clear.error();
    std::vector<AskedShop> shops;
    Found found;
    for (const auto& name : wants.provider.empty() ? session.provider_names : std::vector{wants.provider}) {
        auto provider = open_to_ask(session, name);
        if (provider) shops.push_back({name, std::move(*provider)});
        if (!provider && !wants.provider.empty()) return provider.error();
        if (!provider && provider.error().kind != Error::Kind::auth) found.troubles.push_back({name, provider.error()});
    }
    std::vector<std::function<void()>> questions;
    for (auto& shop : shops) questions.emplace_back([&shop] { shop.offers = shop.provider->offers(); });
    ui::Progress progress(session.screen());
    progress.begin("asking clouds for their offers", asking_patience);
    side_by_side(session, questions);
    progress.end();
    for (const auto& shop : shops) {
        found.asked_a_cloud |= shop.name != "local";
        if (!shop.offers) found.troubles.push_back({shop.name, shop.offers.error()});
        if (!shop.offers) continue;
        for (const auto& offer : *shop.offers)
            if (suits(offer, wants, *clear)) found.offers.push_back({shop.name, offer, shop.provider->brings_gpus()});
    }
    std::stable_sort(found.offers.begin(), found.offers.end(),
                     [](const FoundOffer& a, const FoundOffer& b) { return rank(a) < rank(b); });
    return found;
}

Result<FoundOffer> cheapest(const Found& found, const Wants& wants) {
    std::vector<const FoundOffer*> usable;
    for (const auto& each : found.offers)
        if (each.offer.price.running() && suits_programs(each.offer, wants) && has_wanted_gpu(each, wants))
            usable.push_back(&each);
    if (wants.provider.empty() && found.asked_a_cloud)
        std::erase_if(usable, [](const FoundOffer* each) { return each->provider == "local"; });
    if (usable.empty()) {
        if (!found.troubles.empty()) return found.troubles.front().error;
        return Error{Error::Kind::remote, "there is no machine like that at a known price",
                     "`tnr offers` shows what there is; `tnr whoami` where you are signed in"};
    }
    const FoundOffer& best = *usable.front();
    for (const auto* each : usable) {
        const std::string &one = best.offer.price.currency, &other = each->offer.price.currency;
        if (one == other || best.offer.price.running() == 0.0) continue;
        return Error{Error::Kind::usage, "the cheapest costs " + offer_text(best) + " or " + offer_text(*each),
                     "currencies are not converted: choose with `--provider " + best.provider + "` or `--provider " +
                         each->provider + "`"};
    }
    return best;
}

Result<double> size_wanted(const std::string& option, const std::string& text) {
    if (text.empty()) return 0.0;
    auto amount = parse_amount(text);
    const std::string unit = amount ? ui::lower(amount->unit) : "";
    const bool gib = option != "--cpus" && (unit == "g" || unit == "gb" || unit == "gib");
    if (amount && amount->number > 0 && (unit.empty() || gib)) return amount->number;
    return Error{
        Error::Kind::usage,
        option + " needs a number above 0" + (option == "--cpus" ? "" : ", in GiB") + ": '" + text + "' is none",
        "for example `" + option + " 8`"};
}

std::string offer_text(const FoundOffer& found) {
    const Offer& offer = found.offer;
    return found.provider + " " + offer.name + (offer.region.empty() ? "" : " in " + offer.region) + ": " +
           counted(static_cast<size_t>(offer.cpus), "CPU") + ", " + ui::bytes_text(offer.memory_mib * 1048576.0) +
           ", " + std::to_string(offer.disk_gib) + " GiB disk, " + price_text(offer.price);
}

}  // namespace tnr::cli
