// The highest fencing number (directory.hpp) of each GPU that this host has seen, where every process can read it with one
// load: a small file per GPU, in memory, that all servers of one user share.
//
// A server raises a GPU's number before it touches the GPU as a claim's. A worker has its claim's number, and replays nothing
// once the file shows a larger one: so a server, or a worker, that was stopped for a while and wakes when its GPU has been
// given to another does no more work there, whatever it believes. What is on the GPU already nobody can call back.
//
// Numbers of different pools have nothing to do with each other, so each pool has a folder of its own. Who uses it holds a
// lock of it: what servers left that were killed is known by that nobody does.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::server {

// One GPU's number, read only.
class Fence {
public:
    static Result<Fence> map(const UniqueFd& file);
    Fence(Fence&& other) noexcept : number_(std::exchange(other.number_, nullptr)) {}
    Fence& operator=(Fence&&) = delete;
    ~Fence();
    int64_t highest() const { return number_->load(std::memory_order_relaxed); }

private:
    explicit Fence(const std::atomic<int64_t>* number) : number_(number) {}
    const std::atomic<int64_t>* number_;
};

class Fences {
public:
    // `pool`: its identity, as all its nodes know it. `above`: where memory is a filesystem. Folders of other pools that nobody
    // uses any more are removed.
    static Result<Fences> open(const std::string& pool, const std::string& above = "/dev/shm");

    // The GPU has been given away under this number. Returns a descriptor for Fence::map(), which may not write. Kind remote
    // when a larger number is known: the GPU is another's by now.
    Result<UniqueFd> raise(const std::string& gpu, int64_t number) const;
    // In good order, by the node that the GPU belongs to, when none of its workers is left. Others that still have the file
    // have smaller numbers, and it goes on telling them so.
    void remove(const std::string& gpu) const;
    // Whoever has it holds the lock, too.
    UniqueFd lock_too() const;

private:
    Fences(std::string folder, UniqueFd lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}
    std::string path(const std::string& gpu) const { return folder_ + "/" + gpu; }

    std::string folder_;
    UniqueFd lock_;  // of the folder, shared
};

}  // namespace tnr::server
