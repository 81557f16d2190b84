// Lanes: connections of an encrypted session beside its main one, for batches with much data. ZeroMQ encrypts a
// connection in one I/O thread, which is what limits a copy; each lane has an I/O thread of its own at either end.
//
// A lane carries whole batches. They are numbered, so the receiver restores the order: a batch that arrives before its
// turn waits in Overtakers. A lane that breaks breaks the whole connection; whatever has not been received is sent
// again. README.md: "Lanes".
#pragma once

#include <array>
#include <atomic>
#include <map>

#include "gpu_client/protocol/batch.hpp"
#include "gpu_client/protocol/limits.hpp"

namespace tnr::wire {

// How many lanes a machine with this many cores offers. Each lane keeps a core busy; half of the cores are left to the
// program, the driver and the kernel. A single lane would be no faster than none.
size_t lanes_for_cores(unsigned cores);

// Which lanes one end may send over; they are numbered from 1.
class Lanes {
public:
    // The other end's socket knows the lane as one of connection number `connection`.
    void up(size_t lane, uint64_t connection);
    size_t count_up(uint64_t connection) const;
    // The lane for a batch with this much data: the one that was given least. 0: the main connection.
    size_t pick(uint64_t connection, size_t data_bytes);

private:
    struct Lane {
        uint64_t connection = 0;
        uint64_t given = 0;  // bytes, since a lane last came up
        bool is_of(uint64_t one) const { return connection > 0 && connection == one; }
    };
    std::array<Lane, lanes_max + 1> lanes_;
};

// Bytes that were sent and received, by lane; 0: the main connection. Any thread.
class LaneTraffic {
public:
    struct Bytes {
        uint64_t sent = 0, received = 0;
    };
    void sent(size_t lane, size_t bytes) { counts_[lane].sent.fetch_add(bytes, std::memory_order_relaxed); }
    void received(size_t lane, size_t bytes) { counts_[lane].received.fetch_add(bytes, std::memory_order_relaxed); }
    Bytes of(size_t lane) const { return {counts_[lane].sent.load(), counts_[lane].received.load()}; }
    Bytes total() const;

private:
    struct Counts {
        std::atomic<uint64_t> sent{0}, received{0};
    };
    std::array<Counts, lanes_max + 1> counts_;
};

// The order in which a client dials: the main connection, then lane after lane, each once the one before has shaken
// hands. ZeroMQ gives an accepted connection to the I/O thread that has the fewest; of several accepted at once, it
// would give more than one to the same thread.
class LaneDials {
public:
    explicit LaneDials(size_t wanted) : wanted_(wanted) {}

    // The main connection is dialled anew. If connections keep breaking while lanes are dialled, it gets none, until it
    // breaks without them, too.
    void begin();
    // The connection dialled last has shaken hands. Returns its lane; 0 is the main connection.
    size_t shaken() { return up_++; }
    // The lane to be dialled now; 0: none.
    size_t next() const { return !without_lanes() && up_ <= wanted_ ? up_ : 0; }

private:
    bool without_lanes() const { return failures_ >= lane_failures_max; }

    size_t wanted_;
    size_t up_ = 0;  // the main connection counts
    int failures_ = 0;
};

// Batches that have arrived before their turn. For the receiver only.
class Overtakers {
public:
    // False if that is more than an honest sender has on its way. A batch that is here already is dropped.
    bool put(Batch&& batch);
    // False if it is not here.
    bool take(uint64_t sequence, Batch& batch);
    bool empty() const { return batches_.empty(); }

private:
    std::map<uint64_t, Batch> batches_;
    size_t bytes_ = 0;
};

}  // namespace tnr::wire
