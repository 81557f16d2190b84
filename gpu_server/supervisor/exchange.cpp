// See exchange.hpp.
#include "gpu_server/supervisor/exchange.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/worker/event_page.hpp"

namespace tnr::server {

using nlohmann::json;
using worker::event_page_bytes;
using worker::EventPage;

Exchange::Exchange(Workers& workers, Gpus& gpus, ClaimOf claim_of, int descriptors)
    : workers_(workers), gpus_(gpus), claim_of_(std::move(claim_of)), descriptors_(descriptors) {
    workers_.on_exchange({[this](Worker& worker, const ExchangeMessage& message, UniqueFd file) {
                              if (auto* thing = std::get_if<Lend>(&message))
                                  return lend(worker, *thing, std::move(file));
                              if (auto* wanted = std::get_if<Borrow>(&message)) return borrow(worker, *wanted);
                              if (auto* mine = std::get_if<Withdraw>(&message)) return withdraw(worker, *mine);
                              return take_back(worker, std::get<Return>(message).name);
                          },
                          [this](Worker& worker) { gone(worker); }});
}

void Exchange::answer(Worker& worker, uint64_t ticket, bool ok) {
    workers_.tell(worker, {{"exchanged", {{"ticket", ticket}, {"ok", ok}}}});
}

// It is to be written here, so it must stay as long as it is.
static bool is_event_page(const UniqueFd& file) {
    struct stat status {};
    int seals = fcntl(file.get(), F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(file.get(), &status) == 0 &&
           status.st_size == static_cast<off_t>(event_page_bytes);
}

bool Exchange::lend(Worker& worker, const Lend& lent, UniqueFd file) {
    int64_t claim = claim_of_(worker);
    Thing thing;
    thing.kind = lent.kind;
    thing.owner = &worker;
    if (!file || claim == 0) return false;
    if (thing.is_event()) {
        if (!is_event_page(file)) return false;
    } else {
        if (lent.device >= worker.gpus.size()) return false;
        thing.gpu = worker.gpus[lent.device];
        thing.bytes = lent.bytes;
        if (thing.bytes > gpus_.at(thing.gpu).memory.size()) return false;
    }
    thing.file = std::move(file);
    auto of_claim = of_claim_.find(claim);
    // A claim's part of all is that of its GPUs: so whatever others lend, there is room for its own.
    const auto part = std::min(things_of_claim_max, things_max * worker.gpus.size() / gpus_.all().size());
    bool room = (of_claim == of_claim_.end() || of_claim->second < part) && thing.file.get() < descriptors_;
    bool taken = room && things_.try_emplace({claim, lent.name}, std::move(thing)).second;
    if (taken) ++of_claim_[claim];
    answer(worker, lent.ticket, taken);
    return true;
}

bool Exchange::borrow(Worker& worker, const Borrow& wanted) {
    auto found = things_.find({claim_of_(worker), wanted.name});
    if (found == things_.end() || found->second.withdrawn || found->second.kind != wanted.kind) {
        answer(worker, wanted.ticket, false);
        return true;
    }
    auto& thing = found->second;
    json reply{{"ticket", wanted.ticket}, {"ok", true}};
    if (!thing.is_event()) {
        auto mine = std::find(worker.gpus.begin(), worker.gpus.end(), thing.gpu);
        if (mine == worker.gpus.end()) {
            answer(worker, wanted.ticket, false);
            return true;
        }
        reply["device"] = mine - worker.gpus.begin();
        reply["bytes"] = thing.bytes;
    }
    ++thing.borrowers[&worker];
    workers_.tell(worker, {{"exchanged", std::move(reply)}}, thing.file.get());
    return true;
}

bool Exchange::withdraw(Worker& worker, const Withdraw& mine) {
    auto found = things_.find({claim_of_(worker), mine.name});
    if (found == things_.end() || found->second.owner != &worker || found->second.withdrawn) return false;
    auto& thing = found->second;
    thing.withdrawn = true;
    thing.withdrawal = mine.ticket;
    settle(found);
    return true;
}

bool Exchange::take_back(Worker& worker, const std::string& name) {
    const int64_t claim = claim_of_(worker);
    if (claim == 0) return true;  // one that ends
    auto found = things_.find({claim, name});
    if (found == things_.end()) return false;
    auto borrower = found->second.borrowers.find(&worker);
    if (borrower == found->second.borrowers.end()) return false;
    if (--borrower->second == 0) found->second.borrowers.erase(borrower);
    settle(found);
    return true;
}

// What has been recorded so far counts as reached: a process that has ended reaches nothing any more, and others would
// wait for ever.
static void reach_all(const UniqueFd& file) {
    void* there = mmap(nullptr, event_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (there == MAP_FAILED) return;
    auto& page = *static_cast<EventPage*>(there);
    uint64_t recorded = page.recorded.load();
    for (uint64_t back = 0; back < std::min<uint64_t>(recorded, EventPage::words); ++back) {
        auto& word = page.word(recorded - back);
        uint64_t seen = word.load();
        while (seen < recorded - back && !word.compare_exchange_weak(seen, recorded - back)) {
        }
    }
    munmap(there, event_page_bytes);
}

void Exchange::gone(Worker& worker) {
    for (auto at = things_.begin(); at != things_.end();) {
        auto thing = at++;
        auto& it = thing->second;
        bool had_it = it.borrowers.erase(&worker) != 0 || it.owner == &worker;
        if (!had_it) continue;
        if (it.is_event()) reach_all(it.file);
        if (it.owner == &worker) {
            it.owner = nullptr;
            if (!it.is_event() && !it.borrowers.empty()) {
                it.charged = true;
                gpus_.at(it.gpu).memory.grant(it.bytes);
            }
        }
        settle(thing);
    }
}

// A thing goes when its owner has no more use for it and nobody else has it.
void Exchange::settle(At at) {
    auto& thing = at->second;
    if (!thing.borrowers.empty() || (thing.owner && !thing.withdrawn)) return;
    if (thing.charged) gpus_.at(thing.gpu).memory.take_back(thing.bytes);
    if (thing.owner) workers_.tell(*thing.owner, {{"exchanged", {{"ticket", thing.withdrawal}, {"ok", true}}}});
    auto of_claim = of_claim_.find(at->first.first);
    if (--of_claim->second == 0) of_claim_.erase(of_claim);
    things_.erase(at);
}

std::map<pid_t, std::vector<int>> Exchange::files() const {
    std::map<pid_t, std::vector<int>> files;
    for (auto& [key, thing] : things_) {
        if (thing.is_event() || !thing.file) continue;
        if (thing.owner)
            files[thing.owner->pid].push_back(thing.file.get());
        else if (!thing.borrowers.empty())
            files[thing.borrowers.begin()->first->pid].push_back(thing.file.get());
    }
    return files;
}

// ---- from one server to the next

void Exchange::hand_over(Handover& handover) {
    auto& section = handover.section("exchange") = json::array();
    for (auto& [key, thing] : things_) {
        json borrowers = json::array();
        for (auto& [worker, times] : thing.borrowers) borrowers.push_back({worker->pid, times});
        section.push_back({{"claim", key.first},
                           {"name", key.second},
                           {"kind", static_cast<int>(thing.kind)},
                           {"gpu", thing.gpu},
                           {"bytes", thing.bytes},
                           {"file", handover.keep(std::move(thing.file))},
                           {"owner", thing.owner ? thing.owner->pid : 0},
                           {"borrowers", borrowers},
                           {"withdrawn", thing.withdrawn},
                           {"withdrawal", thing.withdrawal},
                           {"charged", thing.charged}});
    }
    things_.clear();
}

Result<> Exchange::take_over_one(Handover& handover, const json& told, const FindWorker& find_worker) {
    Thing thing;
    const int kind = told.at("kind").get<int>();
    thing.kind = static_cast<ThingKind>(kind);
    told.at("gpu").get_to(thing.gpu);
    told.at("bytes").get_to(thing.bytes);
    thing.file = handover.take(told.at("file"));
    if (const auto owner = told.at("owner").get<pid_t>(); owner != 0) {
        thing.owner = find_worker(owner);
        if (!thing.owner) return badly_handed_over("nobody lends something");
    }
    for (auto& borrower : told.at("borrowers")) {
        auto* worker = find_worker(borrower.at(0).get<pid_t>());
        if (!worker) return badly_handed_over("nobody borrows something");
        thing.borrowers[worker] = borrower.at(1).get<int>();
    }
    told.at("withdrawn").get_to(thing.withdrawn);
    told.at("withdrawal").get_to(thing.withdrawal);
    told.at("charged").get_to(thing.charged);
    const bool known = kind >= 0 && kind <= static_cast<int>(ThingKind::event);
    const bool on_gpu = thing.gpu >= 0 && static_cast<size_t>(thing.gpu) < gpus_.all().size();
    const bool file_gone = thing.withdrawn && !thing.is_event();  // earlier servers hand none over
    if (!known || (!thing.is_event() && !on_gpu) || (!thing.file && !file_gone))
        return badly_handed_over("something that is lent is not whole");
    if (thing.charged) gpus_.at(thing.gpu).memory.grant(thing.bytes);
    const auto claim = told.at("claim").get<int64_t>();
    ++of_claim_[claim];
    things_[{claim, told.at("name").get<std::string>()}] = std::move(thing);
    return Ok{};
}

Result<> Exchange::take_over(Handover& handover, const FindWorker& find_worker) {
    return reading("things that processes share", [&]() -> Result<> {
        for (auto& told : handover.at("exchange"))
            if (auto taken = take_over_one(handover, told, find_worker); !taken) return taken;
        return Ok{};
    });
}

}  // namespace tnr::server
