// The pool over its control messages; control.hpp lists them.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "api_client/base/at_once.hpp"
#include "api_client/base/descriptors.hpp"
#include "api_client/base/handles.hpp"
#include "api_client/base/interrupt.hpp"
#include "api_client/base/text.hpp"
#include "api_client/vocabulary.hpp"
#include "cli/pool.hpp"
#include "cli/ui/text.hpp"
#include "cli/ui/time.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

// Of some hundred lines each: more than any account has claims in a year.
constexpr int pages_max = 10'000;
// One picture of a pool after the other: for how long a node that does not answer is waited for, and then left alone.
constexpr std::chrono::milliseconds node_answers_within{3'000}, silent_node_left_alone{10'000};

// A pool's words as they may be shown, wherever they end up: names, and what programs call themselves.
void make_plain(Json& answer) {
    if (answer.is_string()) answer = ui::plain(answer.get_ref<const std::string&>(), "\n\t");
    if (!answer.is_structured()) return;
    for (auto& each : answer) make_plain(each);
}

Result<Json> plain(Result<Json> answer) {
    if (!answer) return Error{answer.error().kind, ui::plain(answer.error().what), ui::plain(answer.error().hint)};
    make_plain(*answer);
    return answer;
}

// One request, which a thread waits for: ZeroMQ's waiting would end at every signal, and could not be ended by one.
struct Asked {
    std::shared_ptr<control::Client> client;
    std::optional<Result<Json>> answer;
    UniqueFd done, asking;  // `done` is readable once `answer` is there, and `asking` closed
};

// The thread may outlive the caller, which the user has interrupted: it keeps all that it needs.
Result<Json> ask_node(const std::shared_ptr<control::Client>& client, const Json& request,
                      std::chrono::milliseconds timeout = control::default_timeout) {
    Ends pair = make_socket_pair();
    if (!pair) return Error{Error::Kind::internal, "cannot make a pair of sockets"};
    auto asked = std::make_shared<Asked>(Asked{client, std::nullopt, UniqueFd{pair.one}, UniqueFd{pair.other}});
    {
        interrupt::SignalsBlocked blocked;
        std::thread([asked, request, timeout]() mutable {
            asked->answer = asked->client->request(request, timeout);
            // The caller may end the program once it is told: by then this thread holds nothing.
            UniqueFd asking = std::move(asked->asking);
            asked.reset();
            asking.reset();
        }).detach();
    }
    pollfd waits[] = {{asked->done.get(), POLLIN, 0}, {interrupt::fd(), POLLIN, 0}};
    while (!interrupt::interrupted()) {
        ::poll(waits, 2, -1);
        if (waits[0].revents) return plain(std::move(*asked->answer));
    }
    return interrupt::error();
}

class ControlPool : public Pool {
public:
    ControlPool(std::unique_ptr<control::Client> client, const wire::ClientKeys& keys, PoolNews news,
                std::chrono::milliseconds patience)
        : client_(std::move(client)), keys_(keys), news_(std::move(news)) {
        wait_for_connection(patience);
    }

    void wait_for_connection(std::chrono::milliseconds at_most) override {
        patience_ = at_most;
        client_->wait_for_connection(at_most);
    }
    void give_up_when(std::function<bool()> enough) override {
        client_->wait_for_connection(patience_, std::move(enough));
    }

    Result<PoolHello> hello() override try {
        auto answer = ask({{"op", "hello"}});
        if (!answer) return answer.error();
        PoolHello hello{answer->value("role", "")};
        hello.pool = answer->value("pool", "");
        if (answer->contains("time")) hello.time = answer->at("time").get<int64_t>();
        return hello;
    } catch (const Json::exception&) {
        return Error{Error::Kind::remote, "the pool's greeting makes no sense",
                     "is its tnr-gpu-server of another version than this tnr (`tnr version`)?"};
    }

    Result<std::vector<GpuType>> types() override try {
        auto answer = ask({{"op", "types"}});
        if (!answer) return answer.error();
        std::vector<GpuType> types;
        for (const auto& type : answer->at("types")) {
            types.push_back({type.at("name"), type.at("total"), type.at("free"),
                             static_cast<uint64_t>(std::clamp(type.value("memory_bytes", 0.0), 0.0, 1e18))});
            types.back().together = type.value("together", 0);
            auto price = type.find("price");  // {"currency", "per_hour"}, of pools that charge
            if (price == type.end() || price->is_null()) continue;
            types.back().currency = price->at("currency");
            types.back().per_hour = price->at("per_hour").get<double>();
        }
        return types;
    } catch (const Json::exception&) {
        return Error{Error::Kind::remote, "the pool's list of GPU types makes no sense",
                     "is its tnr-gpu-server of another version than this tnr (`tnr version`)?"};
    }

    Result<std::vector<GpuClaim>> claims() override try {
        auto answer = ask({{"op", "claims"}});
        if (!answer) return answer.error();
        std::vector<GpuClaim> claims;
        for (const auto& claim : answer->at("claims"))
            claims.push_back({claim.at("machine"), claim.at("gpu"), static_cast<int>(claim.at("devices").size()),
                              ui::utc_text(claim.at("since").get<int64_t>()), claim.at("sessions")});
        return claims;
    } catch (const Json::exception&) {
        return Error{Error::Kind::remote, "the pool's list of claims makes no sense",
                     "is its tnr-gpu-server of another version than this tnr (`tnr version`)?"};
    }

    // Each node of a pool keeps the ledger of what it served.
    Result<PoolBooks> books(int64_t since, bool everyone, const std::vector<int64_t>& borders) override try {
        PoolBooks books;
        auto nodes = other_nodes();
        if (!nodes) return nodes.error();
        Json request{{"op", "ledger"}, {"since", since * 1000}, {"everyone", everyone}, {"borders", Json::array()}};
        request["sums"] = borders.size() < control::ledger_borders_max;
        request["borders"].push_back(since * 1000);
        for (size_t i = 0; request["sums"] && i < borders.size(); ++i) request["borders"].push_back(borders[i] * 1000);
        books.silent = nodes->gone;
        std::vector<Ledger> ledgers{{"", client_}};
        for (auto& [name, node] : nodes->there) ledgers.push_back({name, node});
        std::vector<std::function<void()>> questions;
        for (auto& ledger : ledgers) questions.emplace_back([&] { ledger.uses = uses_of(ledger.node, request); });
        at_once(questions);
        for (auto& ledger : ledgers) {
            auto& uses = ledger.uses;
            if (uses) books.uses.insert(books.uses.end(), uses->begin(), uses->end());
            bool silent = !uses && !ledger.name.empty() && uses.error().kind == Error::Kind::network;
            if (!uses && (!silent || interrupt::interrupted())) return uses.error();
            if (silent) books.silent.push_back(ledger.name);
        }
        auto prices = each_page(client_, {{"op", "prices"}}, [&](const Json& page) {
            for (const auto& price : page.at("prices")) books.prices.push_back(price_of(price));
            return true;
        });
        if (!prices) return prices.error();
        return books;
    } catch (const Json::exception&) {
        return no_ledger();
    }

    Result<> redeem_token(const std::string& public_key) override {
        return tell({{"op", "enroll_with_token"}, {"public_key", public_key}});
    }
    // Each node tells of itself.
    Result<PoolNow> now() override try {
        auto answer = ask({{"op", "pool"}});
        if (!answer) return answer.error();
        auto now = now_of(*answer);
        auto nodes = other_nodes();
        if (!nodes) return nodes.error();
        for (auto& name : nodes->gone) now.nodes.push_back({.name = name, .version = "", .silent = true});
        for (auto& [name, told] : all_told(nodes->there)) {
            if (told)
                add(now, now_of(*told));
            else if (interrupt::interrupted())
                return told.error();
            else
                now.nodes.push_back({.name = name, .version = "", .silent = true});
        }
        return now;
    } catch (const Json::exception&) {
        return Error{Error::Kind::remote, "what the pool tells of itself makes no sense",
                     "is its tnr-gpu-server of another version than this tnr (`tnr version`)?"};
    }

    Result<> enroll_machine(const std::string& name, const std::string& public_key) override {
        return tell({{"op", "enroll_machine"}, {"name", name}, {"public_key", public_key}});
    }
    Result<> forget_machine(const std::string& name) override {
        return tell({{"op", "forget_machine"}, {"name", name}});
    }

private:
    Result<Json> ask(const Json& request) {
        const auto asked_at = std::chrono::steady_clock::now();
        auto answer = ask_node(client_, request);
        const bool nothing = !answer && answer.error().kind == Error::Kind::network;
        const bool silent = nothing && std::chrono::steady_clock::now() - asked_at >= patience_;
        if (news_.answers && (!nothing || silent)) news_.answers(!silent);
        if (nothing)
            return Error{Error::Kind::network, answer.error().what,
                         answer.error().hint +
                             (silent && patience_ < control::default_timeout
                                  ? "; it was silent a moment ago, too, so it was not waited for any longer"
                                  : "") +
                             "; the pool's other nodes, if it has any, know you too: "
                             "`tnr login pool --help` says how to sign in at one"};
        auto& learned = news_.learned;
        if (auto key = client_->newer_pool_key(); answer && key && learned) std::exchange(learned, nullptr)(*key);
        return answer;
    }
    static PoolGpu gpu_of(const Json& gpu, const std::map<int64_t, const Json*>& claims) {
        PoolGpu one{gpu.at("node"), gpu.at("type"), gpu.at("index"), gpu.at("state")};
        auto found = gpu.at("claim").is_null() ? claims.end() : claims.find(gpu.at("claim").get<int64_t>());
        if (found == claims.end()) return one;
        const Json& claim = *found->second;
        one.user = claim.at("user");
        one.machine = claim.at("machine");
        const auto lasted_ms = claim.at("lasted_ms").get<int64_t>();
        one.held_s = lasted_ms / 1000;
        const auto gpu_ms = static_cast<double>(lasted_ms) * static_cast<double>(claim.at("gpus").size());
        if (gpu_ms > 0) one.busy_share = claim.at("busy_ms").get<double>() / gpu_ms;
        for (const auto& session : claim.at("sessions")) one.programs.push_back(session.at("process"));
        return one;
    }
    static PoolNow now_of(const Json& answer) {
        PoolNow now;
        now.now_ms = answer.at("now");
        std::map<int64_t, const Json*> claims;
        for (const auto& claim : answer.at("claims")) {
            claims[claim.at("id")] = &claim;
            now.bytes_up += claim.at("bytes_up").get<double>();
            now.bytes_down += claim.at("bytes_down").get<double>();
        }
        std::string name;
        for (const auto& node : answer.at("nodes")) {
            now.nodes.push_back({node.at("name"), node.at("version"), node.at("ending")});
            name = node.at("name");
        }
        for (const auto& gpu : answer.at("gpus")) now.gpus.push_back(gpu_of(gpu, claims));
        for (const auto& one : answer.at("queue"))
            now.queue.push_back({one.at("gpu"), one.at("count"), one.at("place"), one.at("of"), one.at("user"),
                                 one.at("waited_ms").get<int64_t>() / 1000, name});
        now.queue_length = answer.at("queue_length");
        auto totals = answer.find("totals");
        if (totals == answer.end()) return now;
        now.claims_total = totals->at("claims").get<int64_t>();
        now.bytes_up = totals->at("bytes_up");
        now.bytes_down = totals->at("bytes_down");
        return now;
    }
    static void add(PoolNow& now, PoolNow more) {
        for (auto& node : more.nodes) now.nodes.push_back(std::move(node));
        for (auto& gpu : more.gpus) now.gpus.push_back(std::move(gpu));
        for (auto& one : more.queue) now.queue.push_back(std::move(one));
        now.queue_length += more.queue_length;
        now.bytes_up += more.bytes_up;
        now.bytes_down += more.bytes_down;
        if (now.claims_total) now.claims_total = *now.claims_total + more.claims_total.value_or(0);
    }
    static GpuUse use_of(const Json& claim) {
        GpuUse use{claim.at("id"),   claim.at("machine"), claim.at("gpu"),  claim.at("count"),
                   claim.at("from"), claim.at("to"),      claim.at("ended")};
        use.bytes_up = claim.at("bytes_up");
        use.bytes_down = claim.at("bytes_down");
        use.busy_ms = claim.value("busy_ms", int64_t{0});
        use.wiped_bytes = claim.value("wiped_bytes", int64_t{0});
        use.wipe_checked_bytes = claim.value("wipe_checked_bytes", int64_t{0});
        use.user = claim.value("account", "");
        use.claims = std::max(claim.value("lines", int64_t{1}), int64_t{1});
        if (claim.contains("held_ms")) use.held_ms = claim.at("held_ms").get<int64_t>();
        return use;
    }
    static GpuPriceSince price_of(const Json& price) {
        GpuPriceSince since{price.at("gpu"), price.at("since"), price.at("currency")};
        if (!price.at("per_hour").is_null()) since.per_hour = price.at("per_hour").get<double>();
        return since;
    }
    using Node = std::shared_ptr<control::Client>;

    struct Ledger {
        std::string name;  // empty: of the node that we are signed in to
        Node node;
        Result<std::vector<GpuUse>> uses = std::vector<GpuUse>{};
    };
    static Result<std::vector<GpuUse>> uses_of(const Node& node, const Json& request) try {
        std::map<int64_t, GpuUse> uses;  // a running claim may be on two pages
        auto read = each_page(node, request, [&](const Json& page) {
            for (const auto& claim : page.at("claims")) uses.insert_or_assign(claim.at("id"), use_of(claim));
            // One that runs may have ended by the next page: then it must not be in a sum there.
            return std::all_of(page.at("claims").begin(), page.at("claims").end(),
                               [](const Json& claim) { return claim.at("ended").get<bool>(); });
        });
        if (!read) return read.error();
        std::vector<GpuUse> all;
        for (auto& [id, use] : uses) all.push_back(std::move(use));
        return all;
    } catch (const Json::exception&) {
        return no_ledger();
    }
    static Error no_ledger() {
        return {Error::Kind::remote, "the pool's ledger makes no sense",
                "is its tnr-gpu-server of another version than this tnr (`tnr version`)?"};
    }
    // What each of them tells of itself; of one that has just been silent, that it is.
    std::map<std::string, Result<Json>> all_told(const std::map<std::string, Node>& nodes) {
        using Clock = std::chrono::steady_clock;
        std::map<std::string, Result<Json>> all;
        std::vector<std::function<void()>> questions;
        for (auto& [name, node] : nodes) {
            const Error silent{Error::Kind::network, name + " did not answer a moment ago"};
            auto& told = all.emplace(name, silent).first->second;
            if (Clock::now() >= silent_until_[name])
                questions.emplace_back([&told, &node = node] {
                    told = ask_node(node, {{"op", "pool"}}, node_answers_within);
                });
        }
        const auto asked_at = Clock::now();
        at_once(questions);
        for (auto& [name, told] : all)
            if (!told && silent_until_[name] <= asked_at) silent_until_[name] = Clock::now() + silent_node_left_alone;
        return all;
    }
    struct Others {
        std::map<std::string, Node> there;  // by name
        std::vector<std::string> gone;      // names of those that were
    };
    // Servers of before there were several know none.
    Result<Others> other_nodes() {
        Others nodes;
        auto answer = ask({{"op", "nodes"}});
        if (!answer && answer.error().kind == Error::Kind::usage) return nodes;
        if (!answer) return answer.error();
        nodes.gone = answer->value("gone", nodes.gone);
        for (const auto& node : answer->at("nodes")) {
            if (node.at("name") == answer->at("asked")) continue;
            wire::ClientKeys keys{node.at("server_key").get<std::string>(), keys_.own};
            if (keys.plain() != keys_.plain()) continue;  // no node of a pool that has keys is without
            auto where = node.at("address").get<std::string>();
            // A connection serves as long as we do, and one thread at a time: two nodes that say that they are at one
            // place have one each.
            auto& known = others_[node.at("name").get<std::string>() + " " + where + " " + keys.server_public];
            if (!known) {
                auto client = control::Client::open(where, keys, control::Refused::say_so);
                if (!client) return client.error();
                known = std::move(*client);
            }
            nodes.there[node.at("name")] = known;
        }
        return nodes;
    }
    // `read` answers whether the pages behind may have sums.
    static Result<> each_page(const Node& node, Json request, const std::function<bool(const Json&)>& read) {
        for (int pages = 0; pages < pages_max; ++pages) {
            auto answer = ask_node(node, request);
            if (!answer) return answer.error();
            if (!read(*answer)) request.erase("sums");
            if (answer->at("next").is_null()) return Ok{};
            request.update(answer->at("next"));
        }
        return Error{Error::Kind::remote, "the pool's ledger does not end", "ask for less of it: --since 7d"};
    }
    Result<> tell(const Json& request) {
        auto answer = ask(request);
        if (!answer) return answer.error();
        return Ok{};
    }

    std::shared_ptr<control::Client> client_;
    wire::ClientKeys keys_;
    PoolNews news_;
    std::chrono::milliseconds patience_{};
    std::map<std::string, Node> others_;                                         // by name, address and key
    std::map<std::string, std::chrono::steady_clock::time_point> silent_until_;  // by name
};

}  // namespace

Result<std::unique_ptr<Pool>> connect_pool(const PoolLogin& login, PoolNews news, std::chrono::milliseconds patience) {
    auto client = control::Client::open(login.address, login.keys, control::Refused::say_so);
    if (!client) return client.error();
    return std::unique_ptr<Pool>(
        std::make_unique<ControlPool>(std::move(*client), login.keys, std::move(news), patience));
}

namespace {

std::string how_many(const GpuType& type) {
    return counted(static_cast<size_t>(type.total), "GPU") + " of type " + type.name;
}

}  // namespace

Result<GpuWish> choose_gpu(Pool& pool, const std::string& text, const std::string& command) {
    GpuWish wish;
    if (!text.empty()) {
        auto parsed = parse_gpu(text);
        if (!parsed) return parsed;
        wish = *parsed;
    }
    auto types = pool.types();
    if (!types) return types.error();
    if (types->empty())
        return Error{Error::Kind::remote, "the pool has no GPUs at all at the moment", "try again later"};
    std::string list;
    std::vector<std::string> names;
    for (const auto& type : *types) {
        list += (list.empty() ? "" : ", ") + type.name;
        names.push_back(type.name);
    }
    if (text.empty() && types->size() == 1) return GpuWish{types->front().name, 1};
    if (text.empty())
        return Error{Error::Kind::usage, "the pool has several types of GPU: " + list,
                     "say which: `" + command + " " + types->front().name + "`"};
    for (const auto& type : *types) {
        if (ui::lower(type.name) != wish.type) continue;
        if (type.most() >= wish.count) return GpuWish{type.name, wish.count};
        return Error{Error::Kind::usage,
                     type.total < wish.count ? "the pool has only " + how_many(type)
                                             : "a machine's GPUs are of one node, and none has more than " +
                                                   std::to_string(type.most()) + " of type " + type.name,
                     "ask for fewer: `" + command + " " + type.name + ":" + std::to_string(type.most()) + "`"};
    }
    return Error{Error::Kind::usage, "the pool has no GPU of type '" + wish.type + "'",
                 did_you_mean(wish.type, names) + "it has: " + list};
}

Result<GpuWish> parse_gpu(const std::string& text) {
    GpuWish wish{ui::lower(text.substr(0, text.find(':'))), 1};
    Error wrong{Error::Kind::usage, "'" + text + "' is no GPU type", "it looks like h100, or h100:2 for two of them"};
    if (wish.type.empty()) return wrong;
    if (wish.type.size() == text.size()) return wish;
    std::string count = text.substr(wish.type.size() + 1);
    if (count.empty() || !std::all_of(count.begin(), count.end(), [](unsigned char c) { return isdigit(c); }))
        return wrong;
    constexpr size_t digits_max = 6;  // far more than any pool has, which choose_gpu() says; and it fits an int
    wish.count = count.size() <= digits_max ? std::stoi(count) : std::numeric_limits<int>::max();
    if (wish.count < 1) return wrong;
    return wish;
}

}  // namespace tnr::cli
