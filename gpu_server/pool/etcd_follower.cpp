// See etcd_follower.hpp.
#include "gpu_server/pool/etcd_follower.hpp"

#include <algorithm>
#include <random>
#include <thread>

#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server::etcd {

namespace {

constexpr http::Limits follow_limits{.connect_ms = 2'000, .total_ms = 10'000};
// A watch that ends sooner did not end because its time was over, and is not begun anew at once.
constexpr int64_t lasted_ms = 1'000;
// A thousand nodes that come at once would be told of each other one by one, a million times at a sixth of a millisecond of
// processor time each; of many at once it is a tenth of that. So many pieces of news within so long are a flood.
constexpr int flood_news = 20;
constexpr int64_t flood_ms = 10'000;
constexpr auto stop_looked_for_every = std::chrono::milliseconds(250);

// By chance, so that not all who began together come together.
double half_to_all() {
    std::random_device chance;
    return std::uniform_real_distribution(0.5, 1.0)(chance);
}
int64_t part_of(int64_t time_ms, double part) {
    return static_cast<int64_t>(static_cast<double>(time_ms) * part);
}

class Flood {
public:
    // Whether the latest piece of news is one too many.
    bool rises() {
        const auto now = boot_ms();
        if (now - began_ms_ > flood_ms) began_ms_ = now, news_ = 0;
        return ++news_ > flood_news;
    }

private:
    int64_t began_ms_ = 0;
    int news_ = 0;
};

}  // namespace

Follower::Follower(Address address, std::string prefix, std::string mark, FollowTimes times)
    : address_(std::move(address)), prefix_(std::move(prefix)), mark_(std::move(mark)), times_(times) {}

void Follower::Heard::note(const std::vector<Event>& events) {
    for (auto& event : events)
        if (event.removed)
            keys.erase(event.pair.key);
        else
            keys.insert(event.pair.key);
}

Result<> Follower::follow(const Told& told, const StopAsked& stopped) {
    Client client(address_, follow_limits, stopped);
    auto listing = client.list(prefix_);
    if (!listing) return listing.error();
    std::vector<Event> all;
    for (auto& pair : listing->values) all.push_back({false, std::move(pair)});
    if (!told(listing->revision, all)) return Ok{};
    Heard heard{listing->revision};
    heard.note(all);
    while (!stopped()) {
        forget_history(client);
        const auto begun = boot_ms();
        auto ended = watch(client, heard, told, stopped);
        if (ended && *ended == Watched::enough) return Ok{};
        if (ended && *ended == Watched::flooded) {
            auto wanted = ride_out_flood(client, heard, told, stopped);
            if (!wanted) return wanted.error();
            if (!*wanted) return Ok{};
            continue;
        }
        // Its time was over, most likely: on from where it was.
        if (ended.error().kind != Error::Kind::network || boot_ms() - begun < lasted_ms) return ended.error();
        if (auto skipped = skip_what_happened_elsewhere(client, heard); !skipped) return skipped;
    }
    return Ok{};
}

Result<Follower::Watched> Follower::watch(Client& client, Heard& heard, const Told& told, const StopAsked& stopped) {
    Flood flood;
    bool flooded = false;
    const auto watched_ms = static_cast<int>(part_of(std::min(times_.watched_ms, times_.history_ms), half_to_all()));
    auto ended = client.watch(prefix_, heard.revision + 1, watched_ms, [&](const News& news) {
        // Not what the answer's header says: so far has etcd come, which may be further than it has told here.
        for (auto& event : news) heard.revision = std::max(heard.revision, event.pair.mod_revision);
        heard.note(news);
        if (news.empty()) return !stopped();
        if (!told(0, news)) return false;
        flooded = times_.gathered_ms > 0 && flood.rises();
        return !flooded;
    });
    if (!ended) return ended.error();
    return flooded ? Watched::flooded : Watched::enough;
}

// To begin where the last watch ended, etcd would read through all that has happened in it since then: the claims of a busy
// pool's last minutes, for each of its nodes. As many keys as before, and none that changed, are the same keys.
Result<> Follower::skip_what_happened_elsewhere(Client& client, Heard& heard) {
    auto since = changed_since(client, heard);
    if (!since) return since.error();
    if (since->values.empty() && since->count == std::ssize(heard.keys)) heard.revision = since->revision;
    return Ok{};
}

// How long depends on how many keys there are meanwhile, which costs little to ask.
Result<> Follower::gather(Client& client, const Heard& heard, const StopAsked& stopped) const {
    const auto begun = boot_ms();
    const double part = half_to_all();
    auto few = all_under(prefix_);
    few.keys_only = true;
    few.most = 1;
    for (int64_t keys = 0, there = std::ssize(heard.keys); there > keys && !stopped();) {
        keys = there;
        const auto until = begun + part_of(std::max(times_.gathered_ms, times_.gathered_ms_per_key * keys), part);
        while (boot_ms() < until && !stopped()) std::this_thread::sleep_for(stop_looked_for_every);
        auto now = client.list(std::vector{few});
        if (!now) return now.error();
        there = now->front().count;
    }
    return Ok{};
}

// False: nobody wants to hear more.
Result<bool> Follower::ride_out_flood(Client& client, Heard& heard, const Told& told, const StopAsked& stopped) {
    while (true) {
        if (auto gathered = gather(client, heard, stopped); !gathered) return gathered.error();
        auto events = what_happened(client, heard);
        if (!events) return events.error();
        if (stopped() || (!events->empty() && !told(0, *events))) return false;
        if (std::ssize(*events) <= flood_news) return true;
    }
}

Result<std::vector<Event>> Follower::what_happened(Client& client, Heard& heard) const {
    auto since = changed_since(client, heard);
    if (!since) return since.error();
    std::vector<Event> events;
    for (auto& pair : since->values) events.push_back({false, std::move(pair)});
    heard.note(events);
    heard.revision = since->revision;
    if (std::ssize(heard.keys) == since->count) return events;
    // Some have gone, and etcd tells only of those that are there.
    auto all = all_under(prefix_);
    all.keys_only = true;
    auto both = client.list(std::vector{what_changed(heard), all});
    if (!both) return both.error();
    for (auto& pair : both->front().values) events.push_back({false, std::move(pair)});
    auto gone = std::exchange(heard.keys, {});
    for (auto& pair : both->back().values) {
        gone.erase(pair.key);
        heard.keys.insert(std::move(pair.key));
    }
    heard.revision = both->back().revision;
    for (auto& key : gone) events.push_back({true, {key, "", 0, heard.revision, 0}});
    return events;
}

Span Follower::what_changed(const Heard& heard) const {
    auto span = all_under(prefix_);
    span.changed_after = heard.revision;
    return span;
}

Result<Listing> Follower::changed_since(Client& client, const Heard& heard) const {
    auto listed = client.list(std::vector{what_changed(heard)});
    if (!listed) return listed.error();
    if (listed->front().revision < heard.revision)
        return Error{Error::Kind::not_found, "etcd was restored, and knows less than it told"};
    return std::move(listed->front());
}

// A busy pool would fill an etcd within days, and then nobody could claim anything. Of all nodes, the one that comes first has
// it forget what was before its last look.
void Follower::forget_history(Client& client) {
    if (mark_.empty() || boot_ms() < history_.looked_at_ms + times_.history_ms) return;
    history_.looked_at_ms = boot_ms();
    auto mark = client.list(std::vector{just(mark_)});
    if (!mark) return;
    int64_t changed = 0;
    for (auto& pair : mark->front().values) changed = pair.mod_revision;
    if (history_.revision > 0 && changed == history_.changed) {
        auto first = client.commit(Txn().if_changed_at(mark_, changed).put(mark_, ""));
        // A full store takes no mark, and needs this most.
        if (first ? !first->done : first.error().kind == Error::Kind::network) return;
        if (first) changed = first->revision;
        if (auto forgotten = client.forget_before(history_.revision); !forgotten)
            log(LogLevel::warning, forgotten.error().what);
    }
    history_.changed = changed;
    history_.revision = mark->front().revision;
}

}  // namespace tnr::server::etcd
