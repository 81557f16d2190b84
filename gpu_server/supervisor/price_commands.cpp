// See price_commands.hpp.
#include "gpu_server/supervisor/price_commands.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/print.hpp"
#include "gpu_server/supervisor/request.hpp"
#include "gpu_server/supervisor/state_folder.hpp"
#include "gpu_server/supervisor/user_commands.hpp"

namespace tnr::server {
namespace {

constexpr int64_t micros_per_unit = 1'000'000;
// An hour of the dearest GPU costs some dollars. In the smallest currencies that are a few hundred thousand.
constexpr int64_t whole_digits_max = 9;
constexpr size_t decimals_max = 6;

Result<std::unique_ptr<Store>> store_in(const std::string& state) {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    return folder->open_store();
}

// What the nodes that are there have, broken or not.
Result<std::set<std::string>> types_there(const std::string& state) {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    auto nodes = folder->open_nodes();
    if (!nodes) return nodes.error();
    auto view = (*nodes)->view();
    if (!view) return view.error();
    std::set<std::string> types;
    for (auto& [name, node] : view->nodes) {
        for (auto& [type, count] : node.types) types.insert(type);
        if (node.kinds) types.insert(node.kinds->begin(), node.kinds->end());
    }
    return types;
}

void note_on_type(const std::string& type, const std::string& state, std::ostream& notes) {
    auto types = types_there(state);
    if (!types || types->count(type) > 0) return;  // the price is set: that is what was asked for
    notes << "note: ";
    if (types->empty())
        notes << "no node of the pool is there now, so nobody can tell whether it has a GPU of type " << type;
    else
        notes << "no node of the pool has a GPU of type " << type << " now";
    for (bool first = true; auto& other : *types)
        notes << (std::exchange(first, false) ? "; they have: " : ", ") << other;
    notes << "\nhint: the price holds once one has; if the name is misspelt: tnr-gpu-server prices remove " << type
          << "\n";
}

bool all_digits(const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string amount_text(int64_t micros) {
    std::string decimals = std::to_string(micros_per_unit + micros % micros_per_unit).substr(1);
    while (decimals.size() > 2 && decimals.back() == '0') decimals.pop_back();
    return std::to_string(micros / micros_per_unit) + "." + decimals;
}

std::string price_text(const GpuPrice& price) {
    if (!price.micros_per_hour) return "none";
    return amount_text(*price.micros_per_hour) + " " + price.currency + "/h";
}

// As gpu_type() makes them.
Result<std::string> type_name(std::string gpu) {
    std::transform(gpu.begin(), gpu.end(), gpu.begin(), [](unsigned char c) { return std::tolower(c); });
    if (is_name(gpu) && gpu.size() <= gpu_name_bytes_max) return gpu;
    return Error{Error::Kind::usage, "'" + gpu + "' is no type of GPU", "it looks like h100 or a100-80gb"};
}

Result<std::vector<GpuPrice>> prices_in_order(Store& store) {
    std::vector<GpuPrice> all;
    for (bool more = true; more;) {
        auto page = store.prices(all.empty() ? 0 : all.back().id, prices_per_answer);
        if (!page) return page.error();
        more = std::ssize(*page) == prices_per_answer;
        all.insert(all.end(), page->begin(), page->end());
    }
    return all;
}

std::map<std::string, GpuPrice> last_of_each(const std::vector<GpuPrice>& all) {
    std::map<std::string, GpuPrice> latest;
    for (auto& price : all) latest.insert_or_assign(price.gpu, price);
    return latest;
}

}  // namespace

Result<Money> parse_price(const std::string& text) {
    const Error wrong{Error::Kind::usage, "'" + text + "' is no price",
                      "it looks like 2.49/h, 2.49EUR/h or $2.49/h, with at most six decimals"};
    std::string rest = text;
    if (rest.ends_with("/h")) rest.resize(rest.size() - 2);
    const bool dollars = rest.starts_with('$');
    if (dollars) rest.erase(0, 1);
    Money money{"USD"};
    auto end = std::find_if(rest.begin(), rest.end(), [](unsigned char c) { return std::isalpha(c) || c == ' '; });
    std::string currency(end, rest.end());
    rest.erase(end, rest.end());
    currency.erase(0, currency.find_first_not_of(' '));
    std::transform(currency.begin(), currency.end(), currency.begin(), [](unsigned char c) { return std::toupper(c); });
    const bool letters = std::all_of(currency.begin(), currency.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    if (!currency.empty() && (dollars || currency.size() != 3 || !letters)) return wrong;
    if (!currency.empty()) money.currency = currency;
    const auto point = rest.find('.');
    const std::string whole = rest.substr(0, point);
    std::string decimals = point == std::string::npos ? "0" : rest.substr(point + 1);
    if (whole.empty() || whole.size() > whole_digits_max || decimals.empty() || decimals.size() > decimals_max ||
        !all_digits(whole) || !all_digits(decimals))
        return wrong;
    decimals.resize(decimals_max, '0');
    money.micros = std::stoll(whole) * micros_per_unit + std::stoll(decimals);
    return money;
}

Result<> set_price(const std::string& gpu, const std::string& price, const std::string& state, bool clock_is_right,
                   std::ostream& out, std::ostream& notes) {
    auto type = type_name(gpu);
    if (!type) return type.error();
    auto money = parse_price(price);
    if (!money) return money.error();
    auto store = store_in(state);
    if (!store) return store.error();
    auto set = (*store)->set_price(*type, money->currency, money->micros, now_ms(), clock_is_right);
    if (!set) return set;
    out << "From now on an hour of " << *type << " costs " << amount_text(money->micros) << " " << money->currency
        << "\n";
    note_on_type(*type, state, notes);
    return Ok{};
}

Result<> remove_price(const std::string& gpu, const std::string& state, bool clock_is_right, std::ostream& out) {
    auto type = type_name(gpu);
    if (!type) return type.error();
    auto store = store_in(state);
    if (!store) return store.error();
    auto all = prices_in_order(**store);
    if (!all) return all.error();
    auto latest = last_of_each(*all);  // also one that a clock which was ahead has set for later
    auto last = latest.find(*type);
    if (last == latest.end() || !last->second.micros_per_hour)
        return Error{Error::Kind::not_found, "there is no price for " + *type, "tnr-gpu-server prices lists them"};
    auto set = (*store)->set_price(*type, last->second.currency, std::nullopt, now_ms(), clock_is_right);
    if (!set) return set;
    out << "From now on " << *type << " has no price\n";
    return Ok{};
}

Result<> list_prices(bool history, const std::string& state, std::ostream& out) {
    auto store = store_in(state);
    if (!store) return store.error();
    auto set = prices_in_order(**store);
    if (!set) return set.error();
    auto& all = *set;
    if (!history) {
        const auto latest = last_of_each(all);
        all.clear();
        for (auto& [gpu, price] : latest)
            if (price.micros_per_hour) all.push_back(price);
    }
    std::vector<std::vector<std::string>> rows{{"TYPE", "SINCE (UTC)", "PRICE"}};
    for (auto& price : all) rows.push_back({price.gpu, date(price.since_ms), price_text(price)});
    print_table(out, rows);
    return Ok{};
}

}  // namespace tnr::server
