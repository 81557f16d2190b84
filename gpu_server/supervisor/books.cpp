// See books.hpp.
#include "gpu_server/supervisor/books.hpp"

#include <algorithm>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

Result<int64_t> Books::begin(ClaimRecord claim) {
    claim.node = node_;
    claim.began_ms = now_ms();
    auto id = ledger_.begin(claim);
    if (!id) return id;
    open_[*id] = {loop_.now()};
    if (timer_ == 0) note_again();
    return id;
}

void Books::moved(int64_t id, int64_t bytes_up, int64_t bytes_down) {
    auto found = open_.find(id);
    if (found == open_.end()) return;
    auto& use = found->second.use;
    use.bytes_up = std::min(use.bytes_up + bytes_up, claim_bytes_max);
    use.bytes_down = std::min(use.bytes_down + bytes_down, claim_bytes_max);
}

ClaimNews Books::news_of(int64_t id, Open& open) {
    if (!open.ended) open.use.lasted_ms = std::chrono::duration_cast<milliseconds>(loop_.now() - open.since).count();
    return {id, open.use, open.ended};
}

std::optional<ClaimUse> Books::use_of(int64_t id) {
    auto found = open_.find(id);
    if (found == open_.end()) return std::nullopt;
    return news_of(id, found->second).use;
}

void Books::end(int64_t id, const std::string& why) {
    auto found = open_.find(id);
    if (found == open_.end() || found->second.ended) return;
    news_of(id, found->second);  // it lasts no longer, whenever the ledger takes it
    found->second.ended = why;
    note_all();
}

void Books::wiped(int64_t id, uint64_t bytes) {
    auto noted = ledger_.note_wiped(id, static_cast<int64_t>(bytes));
    if (!noted) log(LogLevel::error, noted.error().what);
}

void Books::note_all() {
    std::vector<ClaimNews> news;
    for (auto& [id, open] : open_) news.push_back(news_of(id, open));
    auto noted = ledger_.note(news);
    if (!noted && !in_trouble_) log(LogLevel::error, noted.error().what + "; trying again every second");
    if (noted && in_trouble_) log(LogLevel::info, "the ledger is written again");
    in_trouble_ = !noted;
    if (noted) std::erase_if(open_, [](const auto& each) { return each.second.ended.has_value(); });
}

void Books::note_again() {
    timer_ = loop_.after(alive_interval, [this] {
        timer_ = 0;
        note_all();
        if (!open_.empty()) note_again();
    });
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
