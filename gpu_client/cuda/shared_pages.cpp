// See shared_pages.hpp.
#include "gpu_client/cuda/shared_pages.hpp"

#include <pthread.h>

#include <mutex>

#include "gpu_client/cuda/page_turns.hpp"
#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

namespace {

PageTurns& pages() {
    static auto* all = new PageTurns;
    return *all;
}

bool serve_fault(const PageFault& fault) {
    return pages().serve(fault);
}

void watch_forks() {
    static auto* once = new std::once_flag;
    std::call_once(*once, [] {
        ::pthread_atfork([] { pages().before_fork(); }, [] { pages().after_fork(); }, [] { pages().begin_in_child(); });
    });
}

void waited_for_work() {
    pages().told_complete();
    if (pages().has_edges()) pages().fetch_edges();
}

// The whole pages of [host, host + bytes).
PageRun whole_pages(uint64_t host, uint64_t bytes) {
    const uint64_t begin = (host + page_bytes() - 1) / page_bytes(), end = (host + bytes) / page_bytes();
    return {begin, end > begin ? end - begin : 0};
}

CUresult share_pages(const Context& context, const SharedMemory& memory, uint64_t transfers) {
    auto range = std::make_shared<SharedRange>();
    range->address = memory.host / page_bytes() * page_bytes();
    range->lead = memory.host - range->address;
    range->device = memory.device - range->lead;
    range->bytes = memory.bytes;
    range->context = context.handle;
    range->transfers = transfers;
    const size_t count = (range->lead + memory.bytes + page_bytes() - 1) / page_bytes();
    const uint64_t all = count * page_bytes();
    range->states.assign(count, PageState::fresh);
    range->arriving.assign(count, false);
    range->held = true;
    range->used_by_both = !memory.is_managed();
    serve_faults(serve_fault);
    expect_faults(range->address, all);
    const bool own = memory.kind == SharedKind::registered;
    const bool has_value = memory.kind == SharedKind::variable || memory.kind == SharedKind::created;
    if (has_value) keep_serving();
    return pages().add(std::move(range), [&](SharedRange& made) -> CUresult {
        made.view = own ? view_of_program_pages(made.address, all) : view_of_fresh_pages(made.address, all);
        if (!made.view) return own ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
        // It has a value before anybody touches it here: from here on other threads can fault.
        if (has_value) (void)made.take();
        return CUDA_SUCCESS;
    });
}

// The program's own memory: whole pages, and what is left at either end.
CUresult share_registered(const Context& context, const SharedMemory& memory, uint64_t transfers) {
    const auto inner = whole_pages(memory.host, memory.bytes);
    const uint64_t end = memory.host + memory.bytes;
    const uint64_t inner_begin = inner.count == 0 ? end : inner.first * page_bytes();
    const uint64_t inner_end = inner.count == 0 ? end : inner.end() * page_bytes();
    auto there = [&](uint64_t host) { return memory.device + (host - memory.host); };
    if (inner.count != 0) {
        auto result =
            share_pages(context, {memory.kind, inner_begin, there(inner_begin), inner_end - inner_begin, 0}, transfers);
        if (result != CUDA_SUCCESS) return result;
    }
    for (auto [from, to] : {std::pair(memory.host, inner_begin), std::pair(inner_end, end)})
        if (from < to) pages().add_edge({from, there(from), to - from, memory.host, context.handle, transfers, {}});
    watch_forks();
    return CUDA_SUCCESS;
}

}  // namespace

CUresult share_memory(Context& context, const SharedMemory& memory) {
    uint64_t transfers = 0;
    if (auto result = open_transfers(context, transfers); result != CUDA_SUCCESS) return result;
    SharedMemory whole = memory;
    whole.context = context.handle;
    auto result = memory.kind == SharedKind::registered ? share_registered(context, memory, transfers)
                                                        : share_pages(context, memory, transfers);
    if (result == CUDA_SUCCESS) note_shared(whole);
    when_told_complete(waited_for_work);
    return result;
}

bool unshare_memory(uint64_t host, bool fetch) {
    SharedMemory memory;
    if (!find_shared(host, memory) || memory.host != host) return false;
    bool own = memory.kind == SharedKind::registered;
    (void)pages().remove(own ? whole_pages(host, memory.bytes).first * page_bytes() : host, fetch);
    if (own) pages().remove_edges(host, fetch);
    forget_shared(host);
    return true;
}

void unshare_memory_of(const Context& context) {
    if (!anything_shared()) return;
    pages().forget_work_of(context.handle);
    // Memory of the program's own, which another context has registered, stays.
    for (auto& memory : shared_memory_of(context.handle))
        (void)unshare_memory(memory.host, memory.kind == SharedKind::registered);
}

void give_to_gpu() {
    pages().give(PageTurns::every_stream);
    pages().given(nullptr);
}

void expect_touches(uint64_t host, uint64_t bytes, bool soon) {
    pages().expect(host, bytes, soon);
}

CUresult attach_shared(uint64_t host, uint64_t stream, bool from_host_only) {
    return pages().attach(host, stream, from_host_only);
}

void GpuTurn::begin_slowly(Context& context, const StreamRef& stream) {
    context_ = &context;
    stream_ = stream;
    pages().give(stream.object ? stream.object->handle : 0);
}

void GpuTurn::end() {
    const Work work = work_of(*context_, stream_);
    pages().given(&work);
}

void host_function_begins() {
    if (anything_shared()) pages().host_function_begins();
}

void host_function_ended(std::vector<Transfers>& used) {
    if (anything_shared()) pages().host_function_ended(used);
}

}  // namespace tnr::cuda
