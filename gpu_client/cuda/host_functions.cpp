// See host_functions.hpp.
#include "gpu_client/cuda/host_functions.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/page_faults.hpp"
#include "gpu_client/cuda/page_transfers.hpp"
#include "gpu_client/cuda/program_functions.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

constinit thread_local bool in_program_function = false;

namespace {
// A piece of what is in a copy's mirror.
struct Seen {
    std::shared_ptr<const HostCopy> copy;
    uint64_t offset;
    std::vector<std::byte> data;
};

const Work being_submitted{0, 0, UINT64_MAX, nullptr};

struct HostFunctions {
    Mutex mutex;
    Condition wake;
    bool started TNR_GUARDED_BY(mutex) = false;
    uint64_t last_ticket TNR_GUARDED_BY(mutex) = 0;
    struct Waiting {
        std::function<void()> run;
        ClientSession* session = nullptr;  // of its stream
        Sends send = nullptr;              // instead of `run`: nothing of the program
        bool of_graph = false;
        bool retired = false;                                    // of a graph that is gone
        std::deque<uint64_t> expected{};                         // the numbers of runs that launches will still bring
        uint64_t number = 0;                                     // of its only run, if it is not of a graph
        std::shared_ptr<const FunctionMemory> memory = nullptr;  // of a graph; null: none
        CUDA_HOST_NODE_PARAMS given{};
        std::vector<Seen> seen{};  // for memory that is shared: written before the run, on its thread
    };
    using Functions = std::map<uint64_t, Waiting>;  // by ticket
    // Whoever takes one out lets go of it without the lock: what it holds may call the session, whose receiver calls us.
    Functions waiting TNR_GUARDED_BY(mutex);
    // Runs that work submitted to these sessions will still bring.
    struct ToCome {
        // Of functions of the program, by number; those that are submitted together share one. What is known to be complete
        // counts no more: some that a launch was to bring never come.
        std::multimap<uint64_t, Work> functions;
        size_t sends = 0;
    };
    std::map<const ClientSession*, ToCome> to_come TNR_GUARDED_BY(mutex);
    std::atomic<size_t> all_to_come{0};
    std::atomic<uint64_t> last_number{0}, after_function{0};  // the latter for all streams
    struct Reached {
        uint64_t ticket, run;
        ClientSession* session;                 // of a graph's function; else null
        std::function<void()> plain = nullptr;  // this, and nothing of the above
    };
    std::deque<Reached> reached TNR_GUARDED_BY(mutex);

    void start() TNR_REQUIRES(mutex);
    void comes(const Waiting& function, uint64_t number) TNR_REQUIRES(mutex);
    void submitted(const ClientSession* session, uint64_t number, const Work& work);
    void came(const Waiting& function, uint64_t number) TNR_REQUIRES(mutex);
    template <class Matters>
    bool any_to_come(Matters&& matters);
    uint64_t add(Waiting function);
    void end_run(uint64_t ticket);
};
HostFunctions& host_functions() {
    static auto* all = new HostFunctions;
    return *all;
}

// What a function of a graph may have changed goes into the mirrors of the copies behind it.
void bring(const FunctionMemory& memory, std::vector<Transfers>& used) {
    for (auto& copy : memory.brings) {
        auto* context = contexts().find(copy->context);
        Transfers by{copy->context, 0};
        if (!context || open_transfers(*context, by.stream) != CUDA_SUCCESS) continue;
        for_each_stretch(*copy, [&](const HostRows& host, uint64_t offset) {
            const bool plain = host.pitch == host.row_bytes;
            const uint64_t pieces = plain ? 1 : host.rows, bytes = plain ? host.rows * host.row_bytes : host.row_bytes;
            std::vector<std::byte> room;
            for (uint64_t i = 0; i < pieces; ++i) {
                const auto* from = host.address + i * host.pitch;
                if (shared_address(host) != 0) {  // a page that the GPU has comes over before anything is sent
                    room.assign(from, from + bytes);
                    from = room.data();
                }
                give_bytes(by, *copy->mirror + offset + i * bytes, from, bytes);
            }
        });
        used.push_back(by);
    }
}

void write_seen(const HostCopy& copy, uint64_t offset, std::span<const std::byte> data) {
    if (copy.disabled) return;
    for_each_stretch(copy, [&](const HostRows& host, uint64_t first) {
        const uint64_t bytes = host.rows * host.row_bytes;
        const uint64_t begin = std::max(offset, first);
        const uint64_t end = std::min(offset + data.size(), first + bytes);
        if (begin >= end) return;
        Destination to{host.address, bytes, host.rows > 1 ? host.row_bytes : 0, host.pitch};
        (void)to.write(begin - first, data.subspan(begin - offset, end - begin));
    });
}

// One thread for all: CUDA promises streams no concurrency among their host functions.
void run_host_functions() {
    auto& all = host_functions();
    while (true) {
        UniqueLock lock(all.mutex);
        all.wake.wait(all.mutex, [&]() TNR_REQUIRES(all.mutex) { return !all.reached.empty(); });
        auto reached = std::move(all.reached.front());
        all.reached.pop_front();
        if (reached.plain) {
            lock.unlock();
            call_program_function(reached.plain);
            continue;
        }
        auto found = all.waiting.find(reached.ticket);
        bool ours = found != all.waiting.end() && found->second.of_graph == (reached.session != nullptr);
        std::function<void()> run = ours ? found->second.run : nullptr;
        auto send = ours ? found->second.send : nullptr;
        auto memory = ours ? found->second.memory : nullptr;
        auto seen = ours ? std::exchange(found->second.seen, {}) : std::vector<Seen>{};
        auto* session = ours ? found->second.session : reached.session;
        lock.unlock();
        if (!session) continue;  // not one of ours
        note_completion_heard();
        mark_host_function_thread();
        host_function_begins();
        for (auto& piece : seen) write_seen(*piece.copy, piece.offset, piece.data);
        if (run) call_program_function(run);
        run = nullptr;
        std::vector<Transfers> used;
        if (send) send(used);
        send = nullptr;
        if (memory) bring(*memory, used);
        memory = nullptr;
        host_function_ended(used);  // last: what any of these has touched goes back to the GPU
        finish_for_stream(std::move(used));
        session->send_at_once(wire::HostFunctionDone{reached.run});
        session->expect_news(-1);
        if (ours) all.end_run(reached.ticket);
    }
}

void HostFunctions::start() {
    if (!std::exchange(started, true)) start_background_thread(run_host_functions);
}

uint64_t HostFunctions::add(Waiting function) {
    LockGuard lock(mutex);
    start();
    if (!function.of_graph) comes(function, function.number);
    waiting[++last_ticket] = std::move(function);
    return last_ticket;
}

void HostFunctions::comes(const Waiting& function, uint64_t number) {
    auto& runs = to_come[function.session];
    if (function.send)
        ++runs.sends;
    else
        runs.functions.emplace(number, being_submitted);
    ++all_to_come;
}

void HostFunctions::submitted(const ClientSession* session, uint64_t number, const Work& work) {
    LockGuard lock(mutex);
    auto [run, end] = to_come[session].functions.equal_range(number);
    for (; run != end; ++run) run->second = work;
}

void HostFunctions::came(const Waiting& function, uint64_t number) {
    auto& runs = to_come[function.session];
    auto run = runs.functions.find(number);
    if (function.send)
        --runs.sends;
    else if (run != runs.functions.end())
        runs.functions.erase(run);
    else
        return;
    --all_to_come;
}

// A stream's function runs once; a graph's until the graph is gone and no launch of it is on its way.
void HostFunctions::end_run(uint64_t ticket) {
    Functions::node_type gone;
    LockGuard lock(mutex);
    auto found = waiting.find(ticket);
    if (found == waiting.end()) return;
    auto& function = found->second;
    if (!function.of_graph) came(function, function.number);
    if (!function.expected.empty()) {
        came(function, function.expected.front());
        function.expected.pop_front();
    }
    if (!function.of_graph || (function.retired && function.expected.empty())) gone = waiting.extract(found);
}

void retire(uint64_t ticket) {
    auto& all = host_functions();
    HostFunctions::Functions::node_type gone;
    LockGuard lock(all.mutex);
    auto found = all.waiting.find(ticket);
    if (found == all.waiting.end()) return;
    found->second.retired = true;
    if (found->second.expected.empty()) gone = all.waiting.extract(found);
}
}  // namespace

void run_host_function_soon(uint64_t ticket) {
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    all.reached.push_back({ticket, ticket, nullptr, nullptr});
    all.wake.notify_one();
}

void run_graph_function_soon(ClientSession& session, uint64_t ticket, uint64_t run) {
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    all.reached.push_back({ticket, run, &session, nullptr});
    all.wake.notify_one();
}

void run_on_host_thread_soon(std::function<void()> run) {
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    all.start();
    all.reached.push_back({0, 0, nullptr, std::move(run)});
    all.wake.notify_one();
}

// Whoever touches a page that the GPU has waits for the thread that calls this.
static void keep_seen(uint64_t ticket, Seen seen) {
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    auto found = all.waiting.find(ticket);
    if (found != all.waiting.end()) found->second.seen.push_back(std::move(seen));
}

std::shared_ptr<const FunctionMemory> memory_of_function(uint64_t ticket) {
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    auto found = all.waiting.find(ticket);
    return found != all.waiting.end() ? found->second.memory : nullptr;
}

void take_seen_data(uint64_t ticket, uint64_t offset, std::span<const std::byte> data) {
    auto memory = memory_of_function(ticket);
    if (!memory) return;
    for (auto& copy : memory->seen) {
        const uint64_t bytes = mirrored_bytes(*copy);
        if (offset < bytes) {
            if (shared_address(copy->host) == 0) return write_seen(*copy, offset, data);
            return keep_seen(ticket, {copy, offset, {data.begin(), data.end()}});
        }
        offset -= bytes;
    }
}

uint64_t expect_functions(ClientSession& session, const GraphNeeds& needs) {
    if (needs.functions.empty()) return 0;
    auto& all = host_functions();
    const uint64_t number = ++all.last_number;
    {
        LockGuard lock(all.mutex);
        for (auto& function : needs.functions)
            if (auto found = all.waiting.find(*function.ticket); found != all.waiting.end()) {
                found->second.expected.push_back(number);
                all.comes(found->second, number);
            }
    }
    session.expect_news(static_cast<int>(needs.functions.size()));
    return number;
}

void functions_submitted(const Context& context, const StreamRef& stream, uint64_t number) {
    if (number != 0) host_functions().submitted(context.session, number, work_of(context, stream));
    may_come_after_functions(stream);
}

// With the ticket's last copy the function goes.
static std::shared_ptr<const uint64_t> add_owned(HostFunctions::Waiting function) {
    return {new uint64_t(host_functions().add(std::move(function))), [](const uint64_t* last) {
                retire(*last);
                delete last;
            }};
}

std::shared_ptr<const uint64_t> make_graph_function(ClientSession& session, std::function<void()> run,
                                                    const CUDA_HOST_NODE_PARAMS& given) {
    HostFunctions::Waiting function{std::move(run), &session};
    function.of_graph = true;
    function.given = given;
    return add_owned(std::move(function));
}

std::shared_ptr<const uint64_t> make_twin(uint64_t ticket, FunctionMemory memory) {
    auto& all = host_functions();
    HostFunctions::Waiting twin;
    {
        LockGuard lock(all.mutex);
        auto found = all.waiting.find(ticket);
        if (found == all.waiting.end()) return nullptr;
        twin = {found->second.run, found->second.session};
        twin.given = found->second.given;
    }
    twin.of_graph = true;
    twin.memory = std::make_shared<const FunctionMemory>(std::move(memory));
    return add_owned(std::move(twin));
}

void set_function_memory(uint64_t ticket, FunctionMemory memory) {
    auto shared = std::make_shared<const FunctionMemory>(std::move(memory));
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    if (auto found = all.waiting.find(ticket); found != all.waiting.end()) found->second.memory.swap(shared);
}

void take_place_of(uint64_t ticket, uint64_t new_ticket) {
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    auto old = all.waiting.find(ticket), now = all.waiting.find(new_ticket);
    if (old != all.waiting.end() && now != all.waiting.end()) now->second.memory = old->second.memory;
}

// Of sessions that are lost nothing comes.
template <class Matters>
bool HostFunctions::any_to_come(Matters&& matters) {
    if (all_to_come == 0) return false;
    LockGuard lock(mutex);
    for (auto& [session, runs] : to_come)
        all_to_come -= std::erase_if(runs.functions, [](auto& run) {
            return run.second.position != being_submitted.position && is_complete(run.second);
        });
    return std::any_of(to_come.begin(), to_come.end(),
                       [&](auto& one) { return matters(one.second) && !one.first->lost(); });
}

bool comes_after_functions(const StreamRef& stream) {
    auto& all = host_functions();
    if (all.all_to_come == 0) return false;
    bool waits_by_itself = !stream.object || (stream.object->flags & CU_STREAM_NON_BLOCKING) == 0;
    const uint64_t newest =
        waits_by_itself ? UINT64_MAX : std::max(all.after_function.load(), stream.object->after_function.load());
    return all.any_to_come(
        [newest](auto& runs) { return !runs.functions.empty() && runs.functions.begin()->first <= newest; });
}

void may_come_after_functions(const StreamRef& stream) {
    if (stream.object) raise_to(stream.object->after_function, host_functions().last_number);
}

void all_may_come_after_functions() {
    raise_to(host_functions().after_function, host_functions().last_number);
}

bool streams_wait_for_us() {
    return host_functions().any_to_come([](auto& runs) { return !runs.functions.empty() || runs.sends > 0; });
}

CUresult find_graph_function(uint64_t ticket, CUDA_HOST_NODE_PARAMS& given) {
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    auto found = all.waiting.find(ticket);
    if (found == all.waiting.end()) return CUDA_ERROR_INVALID_VALUE;
    given = found->second.given;
    return CUDA_SUCCESS;
}

static CUresult capture_function(const StreamRef& stream, ClientSession& session, std::function<void()> run,
                                 const CUDA_HOST_NODE_PARAMS& given) {
    auto ticket = make_graph_function(session, std::move(run), given);
    RemoteCall call(wire::CaptureHostFunction<>{stream.number, *ticket, {}});
    call.use(stream);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    add_needs(stream, {{}, {{ticket}}});
    return CUDA_SUCCESS;
}

static CUresult submit_function(const StreamRef& stream, Context& context, HostFunctions::Waiting function) {
    auto& all = host_functions();
    auto& session = *context.session.load();
    function.session = &session;
    if (!function.send) function.number = ++all.last_number;
    const uint64_t number = function.number;
    const uint64_t ticket = all.add(std::move(function));
    RemoteCall call(wire::LaunchHostFunction<>{stream.number, ticket});
    call.use(stream);
    auto result = call.send();
    if (result == CUDA_SUCCESS) {
        functions_submitted(context, stream, number);
        session.expect_news(+1);
        return result;
    }
    HostFunctions::Functions::node_type gone;
    LockGuard lock(all.mutex);
    gone = all.waiting.extract(ticket);
    if (gone) all.came(gone.mapped(), gone.mapped().number);
    return result;
}

CUresult send_in_stream(const StreamRef& stream, Context& context, Sends send) {
    return submit_function(stream, context, {nullptr, nullptr, std::move(send)});
}

static CUresult run_in_stream(CUstream in, std::function<void()> run, const CUDA_HOST_NODE_PARAMS& given) {
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_work(stream); result != CUDA_SUCCESS) return result;
    auto& session = *context->session.load();
    if (is_captured(stream)) return capture_function(stream, session, std::move(run), given);
    return submit_function(stream, *context, {std::move(run)});
}

CUresult run_in_stream(CUstream stream, std::function<void()> run) {
    return run_in_stream(stream, std::move(run), {});
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
    return guarded("cuLaunchHostFunc", [&]() -> CUresult {
        if (!function) return CUDA_ERROR_INVALID_VALUE;
        return run_in_stream(stream, [=] { function(data); }, {function, data});
    });
}

CUresult CUDAAPI cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned int flags) {
    return guarded("cuStreamAddCallback", [&]() -> CUresult {
        if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        return run_in_stream(stream, [=] { callback(stream, CUDA_SUCCESS, data); });
    });
}

}  // extern "C"
