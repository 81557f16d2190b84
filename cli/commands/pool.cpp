// `tnr pool top`: a pool as it is now, again and again: its nodes and GPUs, who holds them, who waits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>

#include "api_client/base/interrupt.hpp"
#include "api_client/base/text.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/live.hpp"
#include "cli/same_pool.hpp"
#include "cli/ui/progress.hpp"
#include "cli/ui/table.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

constexpr int every_ms = 1000;  // the server looks at itself as often
// A window as narrow as a phone's shows less of each GPU, rather than half of its columns.
constexpr int narrow_below = 70;

struct TopOptions {
    std::string pool = {};
    bool once = false;
};

Result<PoolLogin> login_of(Session& session, const std::string& address) {
    auto login = session.logins().find(address);
    // One without keys needs no login: it is on this machine.
    if (!login && !address.empty()) return PoolLogin{address, {}};
    return login;
}

std::string percent(const std::optional<double>& share) {
    return share ? std::to_string(std::lround(*share * 100)) + "%" : "";
}

std::string painted(const ui::Paint& paint, const std::string& state) {
    if (state == "free") return paint.good(state);
    return state == "broken" ? paint.bad(state) : state == "wiping" ? paint.doubtful(state) : state;
}

std::string counts(const PoolNow& now) {
    std::map<std::string, int> states;
    for (const auto& gpu : now.gpus) ++states[gpu.state];
    std::string text = counted(now.gpus.size(), "GPU");
    for (const auto& [state, count] : states) text += ", " + std::to_string(count) + " " + state;
    return text;
}

// Between two looks at it; empty after the first.
std::string rates(const PoolNow& now, const std::optional<PoolNow>& before) {
    if (!before || now.now_ms <= before->now_ms) return "";
    const double seconds = static_cast<double>(now.now_ms - before->now_ms) / 1000;
    auto rate = [&](double is, double was) { return std::max(0.0, is - was) / seconds; };
    std::string text = "to GPUs " + ui::bytes_text(rate(now.bytes_up, before->bytes_up)) + "/s, back " +
                       ui::bytes_text(rate(now.bytes_down, before->bytes_down)) + "/s";
    if (!now.claims_total || !before->claims_total) return text + "\n";
    char claims[32];
    std::snprintf(claims, sizeof claims, "%.1f",
                  rate(static_cast<double>(*now.claims_total), static_cast<double>(*before->claims_total)));
    return text + ", claims " + claims + "/s\n";
}

void print_gpus(std::ostream& out, const ui::Paint& paint, const PoolNow& now, bool narrow) {
    const bool several = now.nodes.size() > 1;
    std::vector<std::vector<std::string>> rows;
    if (narrow)
        rows.push_back({"GPU", "STATE", "USER", "BUSY"});
    else
        rows.push_back({"GPU", "STATE", "USER", "MACHINE", "FOR", "BUSY", "PROGRAMS"});
    for (const auto& gpu : now.gpus) {
        const auto name = (several ? gpu.node + " " : "") + gpu.type + " #" + std::to_string(gpu.index);
        if (narrow)
            rows.push_back({name, painted(paint, gpu.state), gpu.user, percent(gpu.busy_share)});
        else
            rows.push_back({name, painted(paint, gpu.state), gpu.user, gpu.machine,
                            gpu.held_s ? ui::duration_text(*gpu.held_s) : "", percent(gpu.busy_share),
                            comma_separated(gpu.programs)});
    }
    ui::print_table(out, rows, paint);
}

void print_queue(std::ostream& out, const ui::Paint& paint, const PoolNow& now) {
    const bool several = now.nodes.size() > 1;
    const auto others = now.queue_length - static_cast<int>(now.queue.size());
    if (now.queue_length == 0) return void(out << "\nNobody waits.\n");
    if (!now.queue.empty()) {
        std::vector<std::vector<std::string>> rows{{"WAITS FOR", "PLACE", "USER", "SINCE"}};
        for (const auto& one : now.queue)
            rows.push_back(
                {std::to_string(one.count) + " " + one.gpu,
                 std::to_string(one.place) + " of " + std::to_string(one.of) + (several ? " at " + one.node : ""),
                 one.user, ui::duration_text(one.waited_s)});
        out << "\n";
        ui::print_table(out, rows, paint);
    }
    if (others > 0) out << "\n" << others << (others > 1 ? " others wait.\n" : " other waits.\n");
}

std::string picture(Session& session, const std::string& address, const PoolNow& now,
                    const std::optional<PoolNow>& before) {
    const auto size = session.out_is_terminal && session.out_size ? session.out_size() : ui::Size{};
    std::ostringstream out;
    out << session.out_paint.strong(address) << ", " << counts(now) << "\n";
    for (const auto& node : now.nodes)
        if (node.stopping)
            out << session.out_paint.doubtful(node.name + " is stopping and takes no new programs") << "\n";
        else if (node.silent)
            out << session.out_paint.bad(node.name + " does not answer") << "\n";
    out << rates(now, before) << "\n";
    print_gpus(out, session.out_paint, now, session.out_is_terminal && size.columns < narrow_below);
    print_queue(out, session.out_paint, now);
    return out.str();
}

Json gpu_now_json(const PoolGpu& gpu) {
    return {{"node", gpu.node},
            {"type", gpu.type},
            {"index", gpu.index},
            {"state", gpu.state},
            {"user", or_null(gpu.user)},
            {"machine", or_null(gpu.machine)},
            {"held_s", gpu.held_s ? Json(*gpu.held_s) : Json()},
            {"busy_share", optional_json(gpu.busy_share)},
            {"programs", gpu.programs}};
}

Json now_json(const std::string& address, const PoolNow& now) {
    Json nodes = Json::array(), gpus = Json::array(), queue = Json::array();
    for (const auto& node : now.nodes)
        nodes.push_back(
            {{"name", node.name}, {"version", node.version}, {"stopping", node.stopping}, {"silent", node.silent}});
    for (const auto& gpu : now.gpus) gpus.push_back(gpu_now_json(gpu));
    for (const auto& one : now.queue)
        queue.push_back({{"gpu", gpu_json(one.gpu, one.count)},
                         {"place", one.place},
                         {"of", one.of},
                         {"user", one.user},
                         {"waited_s", one.waited_s},
                         {"node", one.node}});
    return {
        {"address", address}, {"nodes", nodes}, {"gpus", gpus}, {"queue", queue}, {"queue_length", now.queue_length}};
}

// Until Ctrl-C, which is how one ends it. A pool that does not answer for a while is waited for, once it has answered.
Result<> follow(Session& session, const std::string& address, Pool& pool) {
    std::optional<PoolNow> before;
    while (true) {
        auto now = pool.now();
        if (interrupt::interrupted()) return before ? Result<>(Ok{}) : interrupt::error();
        if (!now && !before) return now.error();
        const bool first = !before;
        show_live(session, now ? picture(session, address, *now, before) : "tnr: " + now.error().what + "\n", first);
        if (now) before = std::move(*now);
        if (!session.out || !session.pause(every_ms)) return Ok{};
    }
}

Result<> top(Session& session, const TopOptions& options) {
    auto wanted = login_of(session, options.pool);
    if (!wanted) return wanted.error();
    auto opened = open_pool(session, *wanted);
    if (!opened) return opened.error();
    const auto& [login, pool] = *opened;
    if (!options.once && session.out_is_terminal && !session.json) return follow(session, login.address, *pool);
    auto now = pool->now();
    if (!now) return now.error();
    if (session.json)
        print_document(session, "pool top", now_json(login.address, *now));
    else
        session.out << picture(session, login.address, *now, std::nullopt);
    return Ok{};
}

}  // namespace

void add_pool(Grammar& tnr, Session& session) {
    auto pool = tnr.command("pool", "Look into a pool of GPUs");
    pool.requires_command();
    pool.footer(
        "Examples:\n"
        "  tnr pool top\n"
        "  tnr pool top --once --pool tcp://127.0.0.1:14900");
    auto options = std::make_shared<TopOptions>();
    auto command = pool.command("top", "Show its GPUs, who holds them and who waits, live");
    command.option("--pool", options->pool,
                   "Its address, tcp://HOST:PORT; the one that you are signed in to unless told");
    command.flag("--once", options->once, "One picture; also where the output is no terminal");
    command.footer(
        "Shown anew every second, until Ctrl-C. Of other users' programs you see which GPUs they hold, and how many\n"
        "wait; in a pool without keys, which is for one machine, everybody sees everything. BUSY is the part of the\n"
        "claim's time in which its programs had unfinished work on the GPU.\n\n"
        "Examples:\n"
        "  tnr pool top\n"
        "  tnr pool top --once --json | jq '.gpus[] | select(.state == \"free\").type'");
    command.run([&session, options] { session.result = top(session, *options); });
}

}  // namespace tnr::cli
