// See day.hpp.
#include "gpu_server/watch/day.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "gpu_server/watch/limits.hpp"

namespace tnr::watch {

using nlohmann::json;
using server::LedgerReport;
using server::UserReport;

namespace {

json user_json(const UserReport& user) {
    json cost = json::array();
    for (auto& [currency, amount] : user.cost) cost.push_back({{"currency", currency}, {"amount", amount}});
    return {{"user", user.user},     {"claims", user.claims},         {"gpu_s", user.gpu_s},
            {"busy_s", user.busy_s}, {"unpriced_s", user.unpriced_s}, {"bytes_up", user.bytes_up},
            {"cost", cost},          {"bytes_down", user.bytes_down}};
}

// Of foreign numbers, so that sums of them stay numbers.
double amount(const json& object, const char* name) {
    return std::clamp(object.at(name).get<double>(), 0.0, report_amount_max);
}

int64_t count(const json& object, const char* name) {
    return static_cast<int64_t>(amount(object, name));
}

UserReport user_of(const json& told) {
    UserReport user;
    user.user = told.at("user").get<std::string>();
    user.claims = count(told, "claims");
    user.gpu_s = amount(told, "gpu_s");
    user.busy_s = amount(told, "busy_s");
    user.unpriced_s = amount(told, "unpriced_s");
    user.bytes_up = amount(told, "bytes_up");
    user.bytes_down = amount(told, "bytes_down");
    for (auto& cost : told.at("cost")) user.cost[cost.at("currency").get<std::string>()] += amount(cost, "amount");
    return user;
}

void add_parts(LedgerReport& to, const LedgerReport& from) {
    const auto width = [](const LedgerReport& report) {
        return static_cast<double>(report.to_ms - report.from_ms) / static_cast<double>(report.parts.size());
    };
    for (size_t i = 0; i < from.parts.size(); ++i) {
        const double middle = static_cast<double>(from.from_ms) + width(from) * (static_cast<double>(i) + 0.5);
        const double part = std::floor((middle - static_cast<double>(to.from_ms)) / width(to));
        if (part < 0 || part >= static_cast<double>(to.parts.size())) continue;
        auto& sums = to.parts[static_cast<size_t>(part)];
        sums.held_s += from.parts[i].held_s;
        sums.busy_s += from.parts[i].busy_s;
        sums.claims += from.parts[i].claims;
    }
}

void add_user(LedgerReport& to, const UserReport& from) {
    auto same = std::find_if(to.users.begin(), to.users.end(), [&](auto& one) { return one.user == from.user; });
    if (same == to.users.end()) return void(to.users.push_back(from));
    same->claims += from.claims;
    same->gpu_s += from.gpu_s;
    same->busy_s += from.busy_s;
    same->unpriced_s += from.unpriced_s;
    same->bytes_up += from.bytes_up;
    same->bytes_down += from.bytes_down;
    for (auto& [currency, cost] : from.cost) same->cost[currency] += cost;
}

}  // namespace

json to_json(const LedgerReport& report) {
    json parts = json::array(), users = json::array();
    for (auto& part : report.parts)
        parts.push_back({{"held_s", part.held_s}, {"busy_s", part.busy_s}, {"claims", part.claims}});
    for (size_t i = 0; i < std::min(report.users.size(), report_users_max); ++i)
        users.push_back(user_json(report.users[i]));
    return {{"from", report.from_ms},
            {"to", report.to_ms},
            {"parts", parts},
            {"users", users},
            {"users_left_out", report.users_left_out + report.users.size() - users.size()},
            {"whole", report.whole}};
}

std::optional<LedgerReport> report_from_json(const json& told) try {
    LedgerReport report;
    report.from_ms = count(told, "from");
    report.to_ms = count(told, "to");
    if (told.at("parts").size() != day_parts || told.at("users").size() > report_users_max) return std::nullopt;
    for (auto& part : told.at("parts"))
        report.parts.push_back({amount(part, "held_s"), amount(part, "busy_s"), count(part, "claims")});
    for (auto& user : told.at("users")) report.users.push_back(user_of(user));
    report.users_left_out = static_cast<size_t>(count(told, "users_left_out"));
    report.whole = told.at("whole").get<bool>();
    return report;
} catch (const json::exception&) {
    return std::nullopt;
}

void add(LedgerReport& to, const LedgerReport& from) {
    add_parts(to, from);
    for (auto& user : from.users) add_user(to, user);
    to.users_left_out += from.users_left_out;
    to.whole = to.whole && from.whole;
    std::stable_sort(to.users.begin(), to.users.end(), [](auto& one, auto& other) { return one.gpu_s > other.gpu_s; });
}

json whole_day(LedgerReport own, const std::string& own_node, const std::vector<std::string>& others,
               const std::vector<FellowDay>& said) {
    std::set<std::string> nodes{own_node}, silent(others.begin(), others.end()), gone;
    json earlier = json::array();
    for (auto& fellow : said) {
        const auto report = fellow.day ? report_from_json(*fellow.day) : std::nullopt;
        if (!report && fellow.gone) gone.insert(fellow.node);
        if (!report || (silent.erase(fellow.node) == 0 && !fellow.gone)) continue;
        if (fellow.earlier_ms != 0)
            earlier.push_back(
                {{"node", fellow.node}, {"at", fellow.earlier_ms}, {"gone", fellow.gone}, {"gpus", fellow.gpus}});
        else
            nodes.insert(fellow.node);
        add(own, *report);
    }
    json day = to_json(own);
    day["nodes"] = nodes;
    day["earlier"] = earlier;
    day["silent"] = silent;
    day["gone"] = gone;
    return day;
}

}  // namespace tnr::watch
