// See status_command.hpp.
#include "gpu_server/supervisor/status_command.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "api_client/base/text.hpp"
#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/ask_server.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/print.hpp"
#include "gpu_server/supervisor/state_folder.hpp"
#include "gpu_server/supervisor/user_commands.hpp"

namespace tnr::server {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

std::string percent(double part, double all) {
    return all > 0 ? std::to_string(std::lround(100 * part / all)) + "%" : "";
}

std::string programs_of(const json& claim) {
    std::set<std::string> names;
    for (auto& session : claim.at("sessions")) names.insert(session.at("process").get<std::string>());
    return comma_separated(names);
}

// Of what every node has said of itself, this one first.
std::vector<const json*> all_of(const json& now, const char* list) {
    std::vector<const json*> all;
    for (auto& one : now.at(list)) all.push_back(&one);
    for (auto& fellow : now.at("fellows"))
        for (auto& one : fellow.at(list)) all.push_back(&one);
    return all;
}

bool has_several_nodes(const json& now) {
    return !now.at("other_nodes").empty();
}

// Each node numbers its claims by itself.
using ClaimName = std::pair<std::string, int64_t>;

void print_gpus(std::ostream& out, const json& now) {
    std::map<ClaimName, const json*> claims;
    for (auto* claim : all_of(now, "claims"))
        claims[{claim->at("node").get<std::string>(), claim->at("id").get<int64_t>()}] = claim;
    std::vector<Row> rows{{"GPU", "STATE", "USER", "MACHINE", "FOR", "BUSY", "PROGRAMS"}};
    for (auto* each : all_of(now, "gpus")) {
        const json& gpu = *each;
        const auto node = gpu.at("node").get<std::string>();
        Row row{(has_several_nodes(now) ? node + " " : "") + gpu.at("type").get<std::string>() + " #" +
                    std::to_string(gpu.at("index").get<int>()),
                gpu.at("state")};
        auto found = gpu.at("claim").is_null() ? claims.end() : claims.find({node, gpu.at("claim").get<int64_t>()});
        if (found == claims.end()) {
            row.resize(rows[0].size());
        } else {
            const json& claim = *found->second;
            const auto lasted_ms = claim.at("lasted_ms").get<int64_t>();
            row.insert(row.end(),
                       {claim.at("user"), claim.at("machine"), duration_text(lasted_ms),
                        percent(claim.at("busy_ms").get<double>(),
                                static_cast<double>(lasted_ms) * static_cast<double>(claim.at("gpus").size())),
                        programs_of(claim)});
        }
        rows.push_back(std::move(row));
    }
    print_table(out, rows);
}

Row queue_row(const json& one, const std::string& node) {
    return {std::to_string(one.at("count").get<int>()) + " " + one.at("gpu").get<std::string>(),
            std::to_string(one.at("place").get<int>()) + " of " + std::to_string(one.at("of").get<int>()) +
                (node.empty() ? "" : " at " + node),
            one.at("user"), one.at("machine"), duration_text(one.at("waited_ms"))};
}

void print_queue(std::ostream& out, const json& now) {
    std::vector<Row> rows{{"WAITS FOR", "PLACE", "USER", "MACHINE", "SINCE"}};
    const auto here = has_several_nodes(now) ? now.at("nodes").at(0).at("name").get<std::string>() : "";
    for (auto& one : now.at("queue")) rows.push_back(queue_row(one, here));
    for (auto& fellow : now.at("fellows"))
        for (auto& one : fellow.at("queue")) rows.push_back(queue_row(one, fellow.at("node")));
    if (rows.size() == 1) return void(out << "\nNobody waits for a GPU.\n");
    out << "\n";
    print_table(out, rows);
}

// The operator's limits; they are in the store, and hold whether a server runs or not.
Result<json> limits_in(const StateFolder& folder) {
    auto store = folder.open_store();
    if (!store) return store.error();
    auto keys = (*store)->keys();
    if (!keys) return keys.error();
    std::set<std::string> accounts;
    for (auto& key : *keys) accounts.insert(key.owner.account);
    json list = json::array();
    for (auto& account : accounts) {
        auto limits = (*store)->limits(account);
        if (!limits) return limits.error();
        list.push_back({{"user", account},
                        {"gpus_max", limits->gpus_max ? json(*limits->gpus_max) : json()},
                        {"device_memory_max", limits->device_memory_max ? json(*limits->device_memory_max) : json()},
                        {"weight", limits->weight},
                        {"priority", limits->priority},
                        {"role", limits->is_operator ? "operator" : "user"}});
    }
    return list;
}

void print_limits(std::ostream& out, const json& limits) {
    if (limits.is_null()) return void(out << "\nWhat users may have is not known: the pool's store does not answer.\n");
    if (limits.empty()) return;
    std::vector<Row> rows{{"USER", "ROLE", "GPUS AT MOST", "MEMORY OF EACH", "WEIGHT", "PRIORITY"}};
    for (auto& one : limits)
        rows.push_back({one.at("user"), one.at("role"),
                        one.at("gpus_max").is_null() ? "all" : one.at("gpus_max").dump(),
                        one.at("device_memory_max").is_null() ? "all" : exact_bytes(one.at("device_memory_max")),
                        one.at("weight").dump(), one.at("priority").dump()});
    out << "\n";
    print_table(out, rows);
}

void print_node_limits(std::ostream& out, const json& now) {
    std::vector<Row> rows{{"AT MOST", "OF WHAT", "FOR", "BEYOND IT"}};
    for (auto& one : now.at("nodes").at(0).at("limits"))
        rows.push_back({one.at("most"), one.at("what"), one.at("of"), one.at("beyond")});
    out << "\n";
    print_table(out, rows);
}

// Of the pool's others, those that have not said what they have.
std::set<std::string> silent_nodes(const json& now) {
    std::set<std::string> silent;
    for (auto& node : now.at("other_nodes")) silent.insert(node.at("name").get<std::string>());
    for (auto& fellow : now.at("fellows")) silent.erase(fellow.at("node").get<std::string>());
    return silent;
}

void print_others(std::ostream& out, const json& now) {
    auto& others = now.at("other_nodes");
    if (others.empty()) return;
    const auto silent = silent_nodes(now);
    std::string names;
    for (auto& node : others) {
        const auto name = node.at("name").get<std::string>();
        names += (names.empty() ? "" : ", ") + name;
        if (node.at("draining")) names += " (draining)";
        if (silent.count(name)) names += " (does not say what it has)";
    }
    out << "The pool has " << others.size() << " more: " << harmless(names) << "\n\n";
}

// What the pool's store knows of the others; who waits there only they know.
Result<json> claims_elsewhere(const StateFolder& folder, const json& now) {
    json list = json::array();
    if (now.at("other_nodes").empty()) return list;
    auto nodes = folder.open_nodes();
    if (!nodes) return nodes.error();
    auto view = (*nodes)->view();
    if (!view) return view.error();
    const auto here = now.at("nodes").at(0).at("name").get<std::string>();
    for (auto& [name, claim] : view->claims)
        if (claim.node != here)
            list.push_back({{"node", claim.node},
                            {"user", claim.account},
                            {"machine", claim.machine},
                            {"gpu", claim.gpu},
                            {"gpus", claim.devices.size()},
                            {"began_ms", claim.began_ms}});
    return list;
}

// Of the nodes that say nothing themselves.
void print_elsewhere(std::ostream& out, const json& now) {
    const auto silent = silent_nodes(now);
    if (silent.empty()) return;
    auto& claims = now.at("claims_elsewhere");
    if (claims.is_null())
        return void(out << "\nWho has GPUs of the nodes that do not answer is not known: nor does the pool's store.\n");
    std::vector<Row> rows{{"AT NODE", "GPUS", "USER", "MACHINE", "SINCE (UTC)"}};
    for (auto& claim : claims)
        if (silent.count(claim.at("node").get<std::string>()))
            rows.push_back({claim.at("node"), claim.at("gpus").dump() + " " + claim.at("gpu").get<std::string>(),
                            claim.at("user"), claim.at("machine"), date(claim.at("began_ms"))});
    if (rows.size() == 1) return void(out << "\nNobody has a GPU of the nodes that do not answer.\n");
    out << "\n";
    print_table(out, rows);
}

void print_status(std::ostream& out, const json& now, const json& limits) {
    for (auto& node : now.at("nodes"))
        out << "Node " << node.at("name").get<std::string>() << ", tnr-gpu-server "
            << node.at("version").get<std::string>() << " at " << node.at("address").get<std::string>() << ", since "
            << date(node.at("since")) << " UTC" << (node.at("ending") ? "; it is stopping" : "")
            << (node.at("draining") ? "; it is being drained, and takes no new programs" : "")
            << (now.at("open") ? "; open, without keys" : "") << "\n\n";
    print_others(out, now);
    print_gpus(out, now);
    print_queue(out, now);
    print_elsewhere(out, now);
    print_limits(out, limits);
    const json& totals = now.at("totals");
    uint64_t refusals = 0;
    for (auto& [kind, count] : totals.at("refusals").items()) refusals += count.get<uint64_t>();
    out << "\nSince its start: " << counted(totals.at("claims"), "claim") << ", "
        << counted(totals.at("sessions"), "program") << ", " << counted(refusals, "refusal") << ", "
        << counted(totals.at("wipes"), "wipe") << " (" << totals.at("wipes_failed") << " failed)\n";
}

// A node of another build may say what this command does not understand: then it has said nothing.
bool is_understood(const json& fellow, const json& now) try {
    json alone = fellow;
    alone.update({{"nodes", now.at("nodes")}, {"other_nodes", now.at("other_nodes")}, {"fellows", json::array()}});
    std::ostringstream nowhere;
    print_gpus(nowhere, alone);
    print_queue(nowhere, alone);
    return true;
} catch (const json::exception&) {
    return false;
}

void leave_out_nonsense(json& now) {
    json understood = json::array();
    for (auto& fellow : now.at("fellows"))
        if (is_understood(fellow, now)) understood.push_back(fellow);
    now["fellows"] = understood;
}

// The server asks the others once somebody looks: until it knows of each that it has answered, or does not. (One of an
// older build does not say who is silent.)
Result<json> ask_for_all(const StateFolder& folder) {
    const auto until = std::chrono::steady_clock::now() + fellows_waited_for;
    while (true) {
        auto answer = ask_server(folder, server_answers_within);
        if (!answer) return answer.error();
        auto& now = answer->says;
        const auto known = now.at("fellows").size() + now.value("silent", json::array()).size();
        const bool all = known >= std::min(now.at("other_nodes").size(), fellows_asked_max);
        if (all || std::chrono::steady_clock::now() >= until) return std::move(now);
        std::this_thread::sleep_for(fellows_looked_at_every);
    }
}

}  // namespace

Result<> show_status(const std::string& state, const std::string& format, bool all_limits, std::ostream& out) try {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    auto asked = ask_for_all(*folder);
    if (!asked) return asked.error();
    json& now = *asked;
    leave_out_nonsense(now);
    // With the store away, what is known of this node still helps.
    const auto limits = limits_in(*folder);
    now["limits"] = limits ? *limits : json();
    const auto elsewhere = limits ? claims_elsewhere(*folder, now) : limits.error();
    now["claims_elsewhere"] = elsewhere ? *elsewhere : json();
    if (format == "json")
        out << now.dump(2) << "\n";
    else
        print_status(out, now, now.at("limits"));
    if (all_limits && format != "json") print_node_limits(out, now);
    return Ok{};
} catch (const json::exception& error) {
    return Error{Error::Kind::internal, std::string("the server's answer makes no sense: ") + error.what(),
                 "is it of another version than this command? tnr-gpu-server version"};
}

}  // namespace tnr::server
