// Nodes and claims as text, as they stand in a directory. See directory.hpp.
#include "gpu_server/pool/directory.hpp"

#include <time.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_server/pool/directory_backend.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server {

using nlohmann::json;

int64_t boot_ms() {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

std::string claim_name(const std::string& node, int64_t id) {
    return node + "/" + std::to_string(id);
}

Error no_such_node(const std::string& name) {
    return {Error::Kind::not_found, "the pool has no node '" + name + "'", "tnr-gpu-server nodes"};
}

static json to_json(const TypeCount& count) {
    return {{"total", count.total}, {"free", count.free}, {"memory_bytes", count.memory_bytes}};
}
static TypeCount count_from(const json& value) {
    return {value.at("total"), value.at("free"), value.at("memory_bytes")};
}

Question together(Question all, const Question& one) {
    all.accounts.insert(one.accounts.begin(), one.accounts.end());
    all.all_claims |= one.all_claims;
    all.all_free |= one.all_free;
    for (auto& [type, count] : one.free) all.free[type] = std::max(all.free[type], count);
    return all;
}

std::string to_text(const TypeCount& count) {
    return to_json(count).dump();
}

std::string to_text(const PoolNode& node) {
    json types = json::object();
    for (auto& [name, count] : node.types) types[name] = to_json(count);
    json entry{{"name", node.name},       {"address", node.address},   {"server_key", node.server_key},
               {"version", node.version}, {"identity", node.identity}, {"types", types},
               {"gpus", node.gpus}};
    if (node.kinds) entry["kinds"] = *node.kinds;
    return entry.dump();
}

std::string to_text(const PoolClaim& claim) {
    return json{{"node", claim.node},        {"id", claim.id},   {"account", claim.account},
                {"machine", claim.machine},  {"gpu", claim.gpu}, {"devices", claim.devices},
                {"began_ms", claim.began_ms}}
        .dump();
}

Result<PoolNode> node_from_text(const std::string& text) try {
    auto value = json::parse(text);
    PoolNode node{value.at("name"), value.at("address"), value.at("server_key"), value.value("version", ""),
                  value.value("identity", "")};
    for (auto& [name, count] : value.at("types").items()) node.types[name] = count_from(count);
    node.gpus = value.value("gpus", std::vector<std::string>());
    if (value.contains("kinds")) node.kinds = value["kinds"].get<std::set<std::string>>();
    return node;
} catch (const json::exception& error) {
    return Error{Error::Kind::remote,
                 std::string("a node's entry in the pool's store makes no sense: ") + error.what()};
}

Result<TypeCount> count_from_text(const std::string& text) try {
    return count_from(json::parse(text));
} catch (const json::exception& error) {
    return Error{Error::Kind::remote, std::string("what a node says it has free makes no sense: ") + error.what()};
}

Result<PoolClaim> claim_from_text(const std::string& text) try {
    auto value = json::parse(text);
    return PoolClaim{value.at("node"),
                     value.at("id"),
                     value.at("account"),
                     value.at("machine"),
                     value.at("gpu"),
                     value.at("devices"),
                     value.value("began_ms", int64_t{0})};
} catch (const json::exception& error) {
    return Error{Error::Kind::remote, std::string("a claim in the pool's store makes no sense: ") + error.what()};
}

void apply(const Change& change, std::map<std::string, PoolNode>& nodes, std::map<std::string, PoolClaim>& claims,
           std::map<std::string, bool>& drains) {
    if (change.all) nodes.clear(), drains.clear();
    for (auto& entry : change.entries) {
        auto slash = entry.name.find('/');
        if (slash == std::string::npos) continue;
        auto kind = entry.name.substr(0, slash), name = entry.name.substr(slash + 1);
        if (kind == "drains") {
            if (entry.text)
                drains[name] = true;
            else
                drains.erase(name);
            if (auto node = nodes.find(name); node != nodes.end()) node->second.draining = entry.text.has_value();
        } else if (kind == "nodes") {
            nodes.erase(name);
            if (!entry.text) continue;
            auto node = node_from_text(*entry.text);
            if (!node) {
                log(LogLevel::warning, "node " + printable(name) + " is left out: " + node.error().what);
                continue;
            }
            node->fence = entry.fence;
            node->draining = drains.count(name) > 0;
            for (auto& [type, count] : node->types) count.free = 0;  // it may be old
            nodes[name] = std::move(*node);
        } else if (kind == "free") {
            auto behind = name.find('/');
            auto node = behind == std::string::npos ? nodes.end() : nodes.find(name.substr(behind + 1));
            auto count = entry.text ? count_from_text(*entry.text) : Error{};
            if (node != nodes.end() && count) node->second.types[name.substr(0, behind)] = *count;
        } else if (kind == "claims") {
            claims.erase(name);
            if (!entry.text) continue;
            auto claim = claim_from_text(*entry.text);
            if (!claim) continue;
            claim->fence = entry.fence;
            claims[name] = std::move(*claim);
        }
    }
}

}  // namespace tnr::server
