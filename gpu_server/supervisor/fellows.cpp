// See fellows.hpp.
#include "gpu_server/supervisor/fellows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <system_error>

#include "api_client/base/at_once.hpp"
#include "api_client/base/files.hpp"
#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/watch/limits.hpp"

namespace tnr::server {

using nlohmann::json;

// Of fellows_asked_max nodes and as many users as a day may name it has some ten megabytes.
static constexpr size_t kept_bytes_max = size_t{64} << 20;

// Foreign text: the other may be of another build. Lists of objects, or nothing.
static json list_of(const json& answer, const char* name) {
    json list = json::array();
    if (auto found = answer.find(name); found != answer.end() && found->is_array())
        for (auto& one : *found)
            if (one.is_object()) list.push_back(one);
    return list;
}

static json without_limits(json nodes) {
    for (auto& node : nodes) node.erase("limits");
    return nodes;
}

Fellows::Fellows(FellowTimes times, std::string kept_in) : times_(times), kept_in_(std::move(kept_in)) {
    if (!kept_in_.empty()) read_kept();
    thread_ = std::thread([this] { serve(); });
}

void Fellows::stop() {
    if (!thread_.joinable()) return;
    {
        LockGuard lock(mutex_);
        stopping_ = true;
    }
    to_ask_.notify_all();
    thread_.join();
    let_go([](auto&) { return true; });
    forget_ended();
}

// Our own file; one that is damaged, or of another build, is as good as none.
void Fellows::read_kept() try {
    auto text = read_file(kept_in_, kept_bytes_max);
    if (!text) return;
    const auto kept = json::parse(*text);
    LockGuard lock(mutex_);
    for (auto& [name, told] : kept.at("days").items()) {
        Said said;
        said.day = std::make_shared<const json>(told.at("day"));
        told.at("heard_ms").get_to(said.day_heard_ms);
        told.at("gpus").get_to(said.gpus);
        said_[name] = std::move(said);
    }
    forget_old();
} catch (const json::exception&) {
    log(LogLevel::warning,
        kept_in_ + " makes no sense: what other nodes said of the last day is not known until they say it again");
}

void Fellows::keep() {
    json days = json::object();
    {
        LockGuard lock(mutex_);
        if (!std::exchange(any_day_heard_, false) || kept_in_.empty()) return;
        for (auto& [name, said] : said_)
            if (said.day) days[name] = {{"day", *said.day}, {"heard_ms", said.day_heard_ms}, {"gpus", said.gpus}};
    }
    const auto text = json{{"days", std::move(days)}}.dump(-1, ' ', false, json::error_handler_t::replace);
    if (auto written = write_file(kept_in_, text); !written)
        log(LogLevel::warning,
            "what other nodes said of the last day would not outlast a restart: " + written.error().what);
}

void Fellows::are(std::vector<Node> nodes, const wire::KeyPair& own) {
    std::set<std::string> there;
    for (auto& node : nodes) there.insert(node.name);
    const bool all = nodes.size() <= fellows_asked_max;
    nodes.resize(std::min(nodes.size(), fellows_asked_max));
    LockGuard lock(mutex_);
    nodes_ = std::move(nodes);
    asks_all_ = all;
    own_ = own;
    for (auto& name : there) said_[name].gone_ms = 0;
    for (auto& [name, said] : said_)
        if (said.gone_ms == 0 && there.count(name) == 0) said.gone_ms = now_ms();
    forget_old();
}

void Fellows::forget_old() {
    const auto since = now_ms() - watch::day_ms;
    for (auto& [name, said] : said_)
        if (said.day_heard_ms < since) said.day = nullptr;
    std::erase_if(said_, [&](auto& one) { return one.second.gone_ms != 0 && one.second.gone_ms < since; });
    const auto longest = [&]() TNR_REQUIRES(mutex_) {
        return std::min_element(said_.begin(), said_.end(), [](auto& one, auto& other) {
            const auto gone_since = [](const Said& said) { return said.gone_ms == 0 ? INT64_MAX : said.gone_ms; };
            return gone_since(one.second) < gone_since(other.second);
        });
    };
    auto gone = std::count_if(said_.begin(), said_.end(), [](auto& one) { return one.second.gone_ms != 0; });
    for (; gone > std::ptrdiff_t{fellows_gone_max}; --gone) said_.erase(longest());
}

watch::FellowsTold Fellows::told() {
    watch::FellowsTold all;
    {
        LockGuard lock(mutex_);
        const auto now = Clock::now();
        wanted_until_ = now + times_.wanted_for;
        for (auto& [name, said] : said_) {
            if (said.gone_ms != 0) continue;
            if (now < said.now_good_until)
                all.said.push_back(said.now);
            else if (now < said.silent_until)
                all.silent.insert(name);
        }
    }
    to_ask_.notify_all();
    return all;
}

std::vector<watch::FellowDay> Fellows::days() {
    std::vector<watch::FellowDay> all;
    {
        LockGuard lock(mutex_);
        const auto now = Clock::now();
        wanted_until_ = now + times_.wanted_for;
        days_wanted_until_ = now + times_.days_wanted_for;
        for (auto& [name, said] : said_) {
            const bool gone = said.gone_ms != 0, fresh = !gone && now < said.day_good_until;
            if (fresh || gone || now < said.silent_until)
                all.push_back({name, said.day, fresh ? 0 : said.day_heard_ms, gone, said.gpus});
        }
    }
    to_ask_.notify_all();
    return all;
}

// False: no more.
bool Fellows::wait_for_round(Round& round) {
    UniqueLock lock(mutex_);
    const auto watched = [this]() TNR_REQUIRES(mutex_) { return !nodes_.empty() && Clock::now() < wanted_until_; };
    to_ask_.wait_for(mutex_, times_.day_noted_every, [&]() TNR_REQUIRES(mutex_) { return stopping_ || watched(); });
    round = {nodes_, own_, watched(), true};
    if (round.watched) round.with_days = Clock::now() < days_wanted_until_;
    // While nobody watches, nodes of a large pool would all ask the same ones.
    if (!round.watched && !asks_all_) round.nodes.clear();
    return !stopping_;
}

// A client that ends waits for ZeroMQ's thread, and that may wait for a name server that says nothing. So it ends on a thread
// that nobody has to wait for.
static std::future<void> end_aside(std::unique_ptr<control::Client> client) {
    std::packaged_task<void()> end([client = client.get()] { delete client; });
    auto ended = end.get_future();
    try {
        std::thread(std::move(end)).detach();
        (void)client.release();
    } catch (const std::system_error&) {
        return {};  // where this process gets no threads, it ends here
    }
    return ended;
}

void Fellows::let_go(const std::function<bool(const Line&)>& which) {
    for (auto& [name, line] : lines_)
        if (line.client && which(line)) line.end = end_aside(std::move(line.client));
}

// Most have ended at once.
void Fellows::forget_ended() {
    const auto until = Clock::now() + fellow_line_ends_within;
    std::erase_if(lines_, [&](auto& one) {
        auto& [node, client, end] = one.second;
        return !client && (!end.valid() || end.wait_until(until) == std::future_status::ready);
    });
}

// Without a client where the last one has not ended.
Fellows::Line& Fellows::line_to(const Node& node, const wire::KeyPair& own) {
    auto& line = lines_[node.name];
    if (line.client || line.end.valid()) return line;
    line.node = node;
    if (lines_.size() > fellow_lines_max) return line;
    auto opened =
        control::Client::open(node.address, {node.server_key, node.server_key.empty() ? wire::KeyPair{} : own});
    if (opened) line.client = std::move(*opened);
    return line;
}

bool Fellows::left_alone(const std::string& name) {
    LockGuard lock(mutex_);
    return stopping_ || Clock::now() < said_[name].silent_until;
}

void Fellows::ask(Line& line, bool with_days) {
    const auto& name = line.node.name;
    bool with_day = false;
    {
        LockGuard lock(mutex_);
        with_day = with_days && Clock::now() >= said_[name].day_asked_at + times_.day_asked_every;
    }
    Result<json> answer = Error{Error::Kind::network, "there is no line to it"};
    if (line.client) answer = line.client->request({{"op", "pool"}, {"day", with_day}}, times_.answers_within);
    const auto now = Clock::now();
    LockGuard lock(mutex_);
    auto& said = said_[name];
    if (!answer) {
        said.silent_until = now + times_.left_alone_for;
        said.now_good_until = said.day_good_until = said.day_asked_at = {};
        return;
    }
    said.silent_until = {};
    compare_clocks(name, said, *answer);
    // It may not have read its ledger yet, or be of a build that says nothing of it.
    if (auto day = answer->find("day"); day != answer->end() && day->is_object()) {
        said.day = std::make_shared<const json>(std::move(*day));
        said.day_heard_ms = now_ms();
        said.day_asked_at = now;
        said.day_good_until = now + times_.day_good_for;
        any_day_heard_ = true;
    }
    said.now = std::make_shared<const json>(json{{"node", name},
                                                 {"nodes", without_limits(list_of(*answer, "nodes"))},
                                                 {"gpus", list_of(*answer, "gpus")},
                                                 {"claims", list_of(*answer, "claims")},
                                                 {"queue", list_of(*answer, "queue")}});
    said.now_good_until = now + times_.good_for;
    said.gpus = std::ssize(said.now->at("gpus"));
}

void Fellows::compare_clocks(const std::string& name, Said& said, const json& answer) {
    auto told = answer.find("now");
    if (told == answer.end() || !told->is_number_integer()) return;
    const double ahead_s = (told->get<double>() - static_cast<double>(now_ms())) / 1000;
    const bool differs = std::abs(ahead_s) * 1000 > static_cast<double>(clocks_differ_by.count());
    if (std::exchange(said.other_clock, differs) == differs) return;
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.0f s", std::abs(ahead_s));
    if (differs)
        log(LogLevel::warning, "the clock of node '" + printable(name) + "' is " + seconds +
                                   (ahead_s > 0 ? " ahead of" : " behind") +
                                   " this node's, and GPU time is billed by the clock of the node that served it: see "
                                   "which of them is wrong (timedatectl), and have both kept in step (chrony)");
    else
        log(LogLevel::info, "the clock of node '" + printable(name) + "' is in step with this node's again");
}

// One that is slow keeps nobody from being asked.
void Fellows::ask_all(const Round& round) {
    const bool new_key = std::exchange(lines_key_, round.own).public_key != round.own.public_key;
    let_go([&](const Line& line) {
        return new_key || std::find(round.nodes.begin(), round.nodes.end(), line.node) == round.nodes.end();
    });
    forget_ended();
    std::vector<std::function<void()>> questions;
    for (auto& node : round.nodes)
        if (!left_alone(node.name))
            questions.emplace_back([this, line = &line_to(node, round.own), &round] { ask(*line, round.with_days); });
    at_once(questions);
    if (!round.watched) let_go([](auto&) { return true; });
}

void Fellows::serve() {
    Round round;
    while (wait_for_round(round)) {
        ask_all(round);
        keep();
        UniqueLock lock(mutex_);
        to_ask_.wait_for(mutex_, times_.asked_every, [this]() TNR_REQUIRES(mutex_) { return stopping_; });
    }
}

}  // namespace tnr::server
