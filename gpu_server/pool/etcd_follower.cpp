// See etcd_follower.hpp.
#include "gpu_server/pool/etcd_follower.hpp"

#include <algorithm>
#include <random>

#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server::etcd {

namespace {

constexpr int follow_connect_ms = 2'000;
// A watch that ends sooner did not end because its time was over, and is not begun anew at once.
constexpr int64_t lasted_ms = 1'000;

int lasting_ms(const FollowTimes& times) {
    const auto most = std::min(times.watched_ms, times.history_ms);
    std::random_device chance;
    return static_cast<int>(std::uniform_int_distribution(most / 2, most)(chance));
}

// Keys that have come, less those that have gone.
int64_t growth(const std::vector<Event>& events) {
    int64_t more = 0;
    for (auto& event : events) more += event.removed ? -1 : event.pair.create_revision == event.pair.mod_revision;
    return more;
}

}  // namespace

Follower::Follower(Address address, std::string prefix, std::string mark, FollowTimes times)
    : address_(std::move(address)), prefix_(std::move(prefix)), mark_(std::move(mark)), times_(times) {}

Result<> Follower::follow(const Told& told, const std::function<bool()>& stopped) {
    Client client(address_, {.connect_ms = follow_connect_ms, .total_ms = lasting_ms(times_)}, stopped);
    auto listing = client.list(prefix_);
    if (!listing) return listing.error();
    std::vector<Event> all;
    for (auto& pair : listing->values) all.push_back({false, std::move(pair)});
    if (!told(true, all)) return Ok{};
    Heard heard{listing->revision, std::ssize(all)};
    while (!stopped()) {
        forget_history(client);
        const auto begun = boot_ms();
        auto ended = watch(client, heard, told, stopped);
        if (ended) return Ok{};
        // Else its time was over, most likely: on from where it was.
        if (ended.error().kind != Error::Kind::network || boot_ms() - begun < lasted_ms) return ended;
        if (auto skipped = skip_what_happened_elsewhere(client, heard); !skipped) return skipped;
    }
    return Ok{};
}

Result<> Follower::watch(Client& client, Heard& heard, const Told& told, const std::function<bool()>& stopped) {
    return client.watch(prefix_, heard.revision + 1, [&](const News& news) {
        heard.revision = std::max(heard.revision, news.revision);
        heard.count += growth(news.events);
        return news.events.empty() ? !stopped() : told(false, news.events);
    });
}

// To begin where the last watch ended, etcd would read through all that has happened in it since then: the claims of a busy
// pool's last minutes, for each of its nodes. As many keys as before, and none that changed, are the same keys.
Result<> Follower::skip_what_happened_elsewhere(Client& client, Heard& heard) {
    auto span = all_under(prefix_);
    span.changed_after = heard.revision;
    auto listed = client.list(std::vector{span});
    if (!listed) return listed.error();
    auto& since = listed->front();
    if (since.revision < heard.revision)
        return Error{Error::Kind::not_found, "etcd was restored, and knows less than it told"};
    if (since.values.empty() && since.count == heard.count) heard.revision = since.revision;
    return Ok{};
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
