// See exchange.hpp.
#include "gpu_server/worker/exchange.hpp"

#include <sys/random.h>

#include <chrono>
#include <future>
#include <nlohmann/json.hpp>

namespace tnr::worker {

using nlohmann::json;

// How long the supervisor may take to answer. It does nothing but look into a map.
static constexpr std::chrono::seconds answer_timeout{10};

static std::string text_of(const wire::ThingName& name) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (auto byte : name) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

namespace {
struct Answered {
    json answer;
    UniqueFd file;
};
}  // namespace

// Waits. What comes too late is dropped with its descriptor.
static CUresult ask(SupervisorLink& supervisor, json message, int file, Answered& answered) {
    auto promise = std::make_shared<std::promise<Answered>>();
    auto future = promise->get_future();
    supervisor.exchange(std::move(message), file, [promise](const json& answer, UniqueFd came) {
        promise->set_value({answer, std::move(came)});
    });
    if (future.wait_for(answer_timeout) != std::future_status::ready) return CUDA_ERROR_OPERATING_SYSTEM;
    answered = future.get();
    return answered.answer.value("ok", false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool new_name(wire::ThingName& name) {
    return getrandom(name.data(), name.size(), 0) == static_cast<ssize_t>(name.size());
}

Borrowed::~Borrowed() {
    supervisor_.tell(json{{"return", {{"name", name}}}});
}

bool Exchange::is_lent(const std::shared_ptr<Physical>& memory, wire::ThingName& name) {
    LockGuard lock(mutex_);
    auto found = lent_.find(memory.get());
    if (found == lent_.end()) return false;
    name = found->second.name;
    return true;
}

static const char* word_of(Exchange::Kind kind) {
    return kind == Exchange::Kind::multicast ? "multicast" : "memory";
}

CUresult Exchange::lend(const std::shared_ptr<Physical>& memory, Kind kind, uint64_t bytes, int file,
                        wire::ThingName& name) {
    if (!new_name(name)) return CUDA_ERROR_OPERATING_SYSTEM;
    Answered answered;
    json message{{"lend", text_of(name)}, {"kind", word_of(kind)}, {"device", memory->device}, {"bytes", bytes}};
    auto result = ask(supervisor_, std::move(message), file, answered);
    if (result != CUDA_SUCCESS)  // too many: the supervisor keeps no more
        return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_OUT_OF_MEMORY : result;
    LockGuard lock(mutex_);
    lent_[memory.get()] = {memory, name};
    return CUDA_SUCCESS;
}

CUresult Exchange::lend_event(int file, wire::ThingName& name) {
    if (!new_name(name)) return CUDA_ERROR_OPERATING_SYSTEM;
    Answered answered;
    auto result = ask(supervisor_, {{"lend", text_of(name)}, {"kind", "event"}}, file, answered);
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

void Exchange::withdraw_event(const wire::ThingName& name) {
    supervisor_.exchange({{"withdraw", text_of(name)}}, -1, [](const json&, UniqueFd) {});
}

static CUresult borrow_thing(SupervisorLink& supervisor, const wire::ThingName& name, const char* kind,
                             Answered& answered, std::shared_ptr<Borrowed>& borrowed) {
    auto text = text_of(name);
    if (auto result = ask(supervisor, {{"borrow", text}, {"kind", kind}}, -1, answered); result != CUDA_SUCCESS)
        return result;
    borrowed = std::make_shared<Borrowed>(supervisor, text);
    return answered.file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult Exchange::borrow(const wire::ThingName& name, Kind kind, BorrowedMemory& memory) {
    Answered answered;
    auto result = borrow_thing(supervisor_, name, word_of(kind), answered, memory.borrowed);
    if (result != CUDA_SUCCESS) return result;
    memory.device = answered.answer.value("device", uint32_t{0});
    memory.bytes = answered.answer.value("bytes", uint64_t{0});
    memory.file = std::move(answered.file);
    return CUDA_SUCCESS;
}

CUresult Exchange::borrow_event(const wire::ThingName& name, std::shared_ptr<Borrowed>& borrowed, UniqueFd& file) {
    Answered answered;
    auto result = borrow_thing(supervisor_, name, "event", answered, borrowed);
    file = std::move(answered.file);
    return result;
}

void Exchange::withdraw_unused() {
    LockGuard lock(mutex_);
    for (auto at = lent_.begin(); at != lent_.end();) {
        auto& lent = at->second;
        if (lent.memory.use_count() > 1) {
            ++at;
            continue;
        }
        // Charged until nobody has it any more.
        supervisor_.exchange({{"withdraw", text_of(lent.name)}}, -1,
                             [held = std::move(lent.memory)](const json&, UniqueFd) {});
        at = lent_.erase(at);
    }
}

}  // namespace tnr::worker
