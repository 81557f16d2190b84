// Functions of the program that run when a stream reaches them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "gpu_client/cuda/graph_needs.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

struct Transfers;  // page_transfers.hpp

// Calls `run` on a thread of ours when the stream reaches it; the stream continues once `run` has returned. In a stream
// that is being captured: whenever a launch of the graph reaches it.
CUresult run_in_stream(CUstream stream, std::function<void()> run);

// Calls `send` on the same thread when the stream reaches it. The stream goes on when the GPU has what that has sent, by
// what it adds to `used`.
using Sends = std::function<void(std::vector<Transfers>& used)>;
CUresult send_in_stream(const StreamRef& stream, Context& context, Sends send);

// The ticket of a function that a graph is about to have. `given`: as the program may ask for it again.
std::shared_ptr<const uint64_t> make_graph_function(ClientSession& session, std::function<void()> run,
                                                    const CUDA_HOST_NODE_PARAMS& given);
// What it sees of the graph's copies to the host, in the order in which the worker sends it, and the copies from the host
// whose mirrors it fills again.
struct FunctionMemory {
    std::vector<std::shared_ptr<const HostCopy>> seen, brings;
    bool of_instance = false;  // what it sees is not what the function of the graph does, which the worker knows
};
void set_function_memory(uint64_t ticket, FunctionMemory memory);
// Null: it sees and brings nothing.
std::shared_ptr<const FunctionMemory> memory_of_function(uint64_t ticket);
// Another ticket for the same function of the program, with memory of its own. Null: there is no such function.
std::shared_ptr<const uint64_t> make_twin(uint64_t ticket, FunctionMemory memory);
// The function with the new ticket sees and brings what the other one does.
void take_place_of(uint64_t ticket, uint64_t new_ticket);
CUresult find_graph_function(uint64_t ticket, CUDA_HOST_NODE_PARAMS& given);

// A stream has reached the function with this ticket. Hands it to the thread that runs host functions and does not wait
// for it: it may take its time.
void run_host_function_soon(uint64_t ticket);
// The same for a function of a graph; `run` is what the worker calls this run of it.
void run_graph_function_soon(ClientSession& session, uint64_t ticket, uint64_t run);
// True while a function of the program is still to run, for a stream or a launched graph, that the stream's next work comes
// after, or may: it may change what that reads.
bool comes_after_functions(const StreamRef& stream);
// The stream waits for something: from here on its work may come after all functions that there are so far.
void may_come_after_functions(const StreamRef& stream);
// The same for all streams.
void all_may_come_after_functions();
// True while any stream waits for a function of the program, or for what `send` of send_in_stream() sends: a worker that waits
// for the stream takes nothing from us.
bool streams_wait_for_us();
// What the function with this ticket will see of the graph's copies to the host, before it runs.
void take_seen_data(uint64_t ticket, uint64_t offset, std::span<const std::byte> data);
// Runs it on the same thread, soon, as another function of the program.
void run_on_host_thread_soon(std::function<void()> run);
// A launch will run these. Returns their number, 0 if there are none, for functions_submitted().
uint64_t expect_functions(ClientSession& session, const GraphNeeds& needs);
// What brings functions of the program has been put into the stream.
void functions_submitted(const Context& context, const StreamRef& stream, uint64_t number);

}  // namespace tnr::cuda
