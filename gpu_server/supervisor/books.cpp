// See books.hpp.
#include "gpu_server/supervisor/books.hpp"

#include <algorithm>

#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

Result<int64_t> Books::begin(ClaimRecord claim) {
    claim.node = node_;
    claim.began_ms = now_ms();
    auto id = ledger_.begin(claim);
    if (!id) return id;
    open_[*id] = {std::nullopt, std::count(claim.devices.begin(), claim.devices.end(), ',') + 1};
    if (timer_ == 0) note_again();
    return id;
}

void Books::count(int64_t id) {
    if (auto found = open_.find(id); found != open_.end()) found->second.since = loop_.now();
}

void Books::used(int64_t id, const WorkerUse& more) {
    auto found = open_.find(id);
    if (found == open_.end()) return;
    auto& use = found->second.use;
    use.bytes_up = std::min(use.bytes_up + more.bytes_up, claim_use_max);
    use.bytes_down = std::min(use.bytes_down + more.bytes_down, claim_use_max);
    use.busy_ms = std::min(use.busy_ms + more.busy_ms, claim_use_max);
}

ClaimNews Books::news_of(int64_t id, Open& open) {
    if (!open.ended && open.since)
        open.use.lasted_ms = std::chrono::duration_cast<milliseconds>(loop_.now() - *open.since).count();
    auto use = open.use;
    use.busy_ms = std::min(use.busy_ms, use.lasted_ms * open.gpus);
    return {id, use, open.ended};
}

std::optional<ClaimUse> Books::use_of(int64_t id) {
    auto found = open_.find(id);
    if (found == open_.end()) return std::nullopt;
    return news_of(id, found->second).use;
}

void Books::end(int64_t id, const std::string& why) {
    auto found = open_.find(id);
    if (found == open_.end() || found->second.ended) return;
    // It lasts no longer, whenever the ledger takes it.
    ended_.add(news_of(id, found->second).use, found->second.gpus);
    found->second.ended = why;
    note_all();
}

void UseTally::add(const ClaimUse& use, int64_t gpus) {
    constexpr double ms_per_s = 1000;
    bytes_up += static_cast<double>(use.bytes_up);
    bytes_down += static_cast<double>(use.bytes_down);
    held_s += static_cast<double>(use.lasted_ms * gpus) / ms_per_s;
    busy_s += static_cast<double>(use.busy_ms) / ms_per_s;
}

UseTally Books::tally() {
    auto all = ended_;
    for (auto& [id, open] : open_)
        if (!open.ended) all.add(news_of(id, open).use, open.gpus);
    return all;
}

void Books::wiped(int64_t id, const WipeRecord& wipe) {
    wipes_[id] = wipe;
    note_wipes();
    if (wipes_.empty()) return;
    log(LogLevel::error,
        "the ledger does not take what was wiped after claim " + std::to_string(id) + "; trying again every second");
    if (timer_ == 0) note_again();
}

void Books::note_wipes() {
    std::erase_if(wipes_,
                  [this](const auto& each) { return static_cast<bool>(ledger_.note_wiped(each.first, each.second)); });
}

void Books::note_all() {
    std::vector<ClaimNews> news;
    for (auto& [id, open] : open_) news.push_back(news_of(id, open));
    auto noted = ledger_.note(news);
    if (!noted && !in_trouble_) log(LogLevel::error, noted.error().what + "; trying again every second");
    if (noted && in_trouble_) log(LogLevel::info, "the ledger is written again");
    in_trouble_ = !noted;
    if (!noted) return;
    std::erase_if(open_, [](const auto& each) { return each.second.ended.has_value(); });
    note_wipes();
}

void Books::note_again() {
    timer_ = loop_.after(alive_interval, [this] {
        timer_ = 0;
        note_all();
        if (!open_.empty() || !wipes_.empty()) note_again();
    });
}

void Books::hand_over(Handover& handover) {
    note_all();
    auto& section = handover.section("books") = {{"open", json::array()}, {"wipes", json::array()}};
    for (auto& [id, open] : open_)
        section["open"].push_back({{"claim", id},
                                   {"since", ticks(open.since.value_or(loop_.now()))},
                                   {"gpus", open.gpus},
                                   {"lasted_ms", open.use.lasted_ms},
                                   {"bytes_up", open.use.bytes_up},
                                   {"bytes_down", open.use.bytes_down},
                                   {"busy_ms", open.use.busy_ms},
                                   {"ended", open.ended ? json(*open.ended) : json()}});
    for (auto& [id, wipe] : wipes_)
        section["wipes"].push_back(
            {{"claim", id}, {"bytes", wipe.bytes}, {"checked", wipe.checked_bytes}, {"took_ms", wipe.took_ms}});
}

Result<> Books::take_over(const Handover& handover) {
    return reading("books", [&]() -> Result<> {
        auto& section = handover.at("books");
        for (auto& told : section.at("open")) {
            Open open{time_of(told.at("since")), told.at("gpus").get<int64_t>()};
            open.use = {told.at("lasted_ms").get<int64_t>(), told.at("bytes_up").get<int64_t>(),
                        told.at("bytes_down").get<int64_t>(), told.at("busy_ms").get<int64_t>()};
            if (!told.at("ended").is_null()) open.ended = told.at("ended").get<std::string>();
            open_[told.at("claim").get<int64_t>()] = std::move(open);
        }
        for (auto& told : section.at("wipes"))
            wipes_[told.at("claim").get<int64_t>()] = {
                told.at("bytes").get<int64_t>(), told.at("checked").get<int64_t>(), told.at("took_ms").get<int64_t>()};
        if (timer_ == 0 && !(open_.empty() && wipes_.empty())) note_again();
        return Ok{};
    });
}

std::set<int64_t> Books::open_in(const Handover& handover) {
    std::set<int64_t> open;
    for (auto& told : handover.at("books").at("open")) open.insert(told.at("claim").get<int64_t>());
    return open;
}

LedgerSync::LedgerSync(Ledger& ledger) : ledger_(ledger), thread_([this] { keep_syncing(); }) {}

LedgerSync::~LedgerSync() {
    {
        LockGuard lock(mutex_);
        stopping_ = true;
    }
    wanted_.notify_all();
    thread_.join();
}

void LedgerSync::keep_syncing() {
    bool in_trouble = false;
    for (bool stopping = false; !stopping;) {
        {
            LockGuard lock(mutex_);
            wanted_.wait_for(mutex_, ledger_synced_every, [&]() TNR_REQUIRES(mutex_) { return stopping_; });
            stopping = stopping_;  // what came last is made durable, too
        }
        auto synced = ledger_.sync();
        if (!synced && !in_trouble) log(LogLevel::error, synced.error().what);
        in_trouble = !synced;
    }
}

}  // namespace tnr::server
