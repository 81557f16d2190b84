// Moving pages between this process and the GPU, and waiting for the GPU's work, by threads that belong to no call of
// the program: nothing here takes an error that the program has yet to hear of.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/shared_range.hpp"

namespace tnr::cuda {

// The last work that a stream was given.
struct Work {
    uint64_t context = 0;
    uint64_t stream = 0;  // handle; 0: a default stream
    uint64_t position = 0;
    std::shared_ptr<struct WorkAsked> asked;        // set by wait_for()
    std::chrono::steady_clock::time_point since{};  // when the program had submitted it
};
Work work_of(const Context& context, const StreamRef& stream);
// True if it is known already.
bool is_complete(const Work& work);
enum class Waited : uint8_t {
    complete,
    going_on,  // when the time was over
    failed,    // it cannot be known: the GPU or the connection to it has failed
};
// Asks once for each piece of work; is_complete() knows when the answer is there.
Waited wait_for(Work& work, std::chrono::milliseconds timeout);
// The stream is about to be captured, and cannot be waited for then: from here on it is told when what it has been given is
// complete. Nothing to do while the program shares no memory: nobody waits for it by himself then.
void watch_before_capture(const StreamRef& stream);

// The stream that moves pages of this context. It waits for no other.
CUresult open_transfers(Context& context, uint64_t& stream);
struct Transfers {
    uint64_t context = 0, stream = 0;  // handles
    bool operator==(const Transfers&) const = default;
    bool operator<(const Transfers& other) const {
        return std::tie(context, stream) < std::tie(other.context, other.stream);
    }
};
// What is sent after this sees the bytes, in whatever stream.
void give_bytes(const Transfers& by, uint64_t device, const std::byte* from, uint64_t bytes);
struct WantedBytes {
    uint64_t device, bytes;
    std::byte* to;
};
// Blocks until all bytes have been written from `to` on: it waits once, up to some hundred pieces.
bool fetch_bytes(const Transfers& by, std::span<const WantedBytes> wanted);
// Blocks until the GPU has what was given after a function that a stream waits for. It may take too long: then it tells.
// `used`: what has moved it, in any order; each is waited for once.
void finish_for_stream(std::vector<Transfers> used);
// The same for pages, as far as they belong to the range. The program cannot write to them.
void give_pages(const SharedRange& range, PageRun run);
bool fetch_pages(const SharedRange& range, PageRun run, std::byte* to);

}  // namespace tnr::cuda
