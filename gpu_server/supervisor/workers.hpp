// The workers of this node, as those see them who decide what they are for (gpus.hpp, claims.hpp). worker_processes.hpp
// runs them as processes; tests of the orders of events have none.
//
// Control messages, one JSON object per packet:
//   worker → supervisor  {"ready": true, "devices": [Device…]}             or {"failed": "why"}
//   supervisor → worker  {"fence": true}, with a file                      for each GPU of its claim, before "serve": once that
//                        shows a number beyond the claim's, the GPU is another's (pool/fences.hpp)
//   supervisor → worker  {"serve": {session, client_key, server_public, server_secret, account, machine, shared, lanes,
//                        threads_max, device_memory_max, fence, lease_until_ms}}
//                        the keys are empty for plain text; lanes: how many the client may open; threads_max: Worker::threads;
//                        device_memory_max: bytes of each GPU that the claim may use; fence: the pool's number for the claim; after that time of
//                        the node's clock (pool/directory.hpp) no client may come first
//   supervisor → worker  {"lease_until_ms": …}                             it lasts longer now
//   worker → supervisor  {"connected": true}                               its client has come, for the first time
//   worker → supervisor  {"moved": {up, down, busy_ms}}                    bytes to the GPU and back so far, and how
//                        long it had work (busy_time.hpp); now and then; none of them ever shrinks
//   worker → supervisor  {"away": true}                                    its client has left, perhaps for good, or (false) is back;
//                                                                          in turns, and after it has come
//   worker → supervisor  {"grant": {device, bytes, ticket}}                answered by {"granted": {ticket, bytes}}
//   supervisor → worker  {"memory_wanted": {device, bytes}}                another process of the claim wants as much; answered by
//   worker → supervisor  {"memory_back": {device, bytes}}                  so much less is granted to it; also unasked
//   supervisor → worker  {"shared": true}                                  another process of the claim has come, or (false)
//                        the last other one has gone; what the worker knows first is in "serve"
//   supervisor → worker  {"end": "why"}                                    say good-bye to the client and exit
//   worker → supervisor  {"ended": "why"}                                  its last word
//   worker → supervisor  {"find_image": {hash, bytes, ticket}}             answered by {"image": {ticket}}, with a descriptor
//                                                                          if the tenant's cache has it
//   worker → supervisor  {"keep_image": {hash, bytes}}, with a sealed memory file
//   worker → supervisor  {"exchange": …}, {"return": …}                    see exchange.hpp; answered by {"exchanged": …}
//   worker → supervisor  {"damaged_image": {hash}}                         what it got has another hash
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/foreign_lines.hpp"
#include "gpu_server/supervisor/worker_messages.hpp"

namespace tnr::server {

struct Worker {
    enum class State { starting, warm, serving, dying };
    State state = State::starting;
    pid_t pid = -1;
    std::vector<int> gpus;  // indexes into the node's list
    Endpoint endpoint;      // where it listens
    std::vector<DeviceDescription> devices;
    EventLoop::Clock::time_point started;
    std::string last_word;  // why it ended or failed, in its own words
    size_t threads = 0;     // that it may have, once it serves
    std::string tenant;     // whose code images it may use (image_cache.hpp); empty: nobody's
    bool killed_by_us = false;
    bool killed_by_others = false;  // once it is gone: by a signal that no driver sends itself
    UniqueFd control;
    EventLoop::TimerId ends_by = 0;      // since its last word
    EventLoop::TimerId heard_again = 0;  // while it has said too much: when it is listened to again
    UniqueFd errors;                     // what it writes to stderr
    ForeignLines lines{nullptr};
    UniqueFd door;             // bound, not listening; or of a pair (front_door.hpp); until it serves
    uint64_t door_number = 0;  // while it serves, at the front door; 0: it has a port
};

// By its process's id; null: there is none.
using FindWorker = std::function<Worker*(pid_t)>;

class Workers {
public:
    struct Events {
        std::function<void(Worker&)> ready;
        // False, of these four: it cannot be true, so it is no honest worker.
        std::function<bool(Worker&)> connected;
        std::function<bool(Worker&, bool)> away;
        std::function<bool(Worker&, const WorkerUse&)> used;
        std::function<bool(Worker&, const MemoryBack&)> returned_memory;
        std::function<void(Worker&, const MemoryWish&)> wants_memory;
        // It has exited and been waited for; the object is gone after the call. `how` is for people.
        std::function<void(Worker&, const std::string& how)> gone;
    };

    virtual ~Workers() = default;
    void on(Events events) { events_ = std::move(events); }
    // What serving workers say about code images (image_keeper.hpp). False: it makes no sense.
    using ImageEvent = std::function<bool(Worker&, const ImageMessage& message, UniqueFd file)>;
    void on_image_message(ImageEvent told) { image_message_ = std::move(told); }

    // What serving workers say about things that processes of a claim give each other (exchange.hpp), and which have
    // ended: just before Events::gone.
    struct ExchangeEvents {
        std::function<bool(Worker&, const ExchangeMessage& message, UniqueFd file)> message;
        std::function<void(Worker&)> gone;
    };
    void on_exchange(ExchangeEvents events) { exchange_ = std::move(events); }

    // Pointers stay valid until `gone`. An Error is this host's, never the GPU's: no descriptor, no process, no port.
    virtual Result<Worker*> start(const std::vector<int>& gpus, const std::vector<std::string>& selectors) = 0;
    // Clients may connect to it from now on. Before it is told to serve.
    virtual Result<> open_door(Worker& worker) = 0;
    // Before it is told to serve, and with that of the same.
    virtual void limit_threads(Worker& worker, size_t most) = 0;
    // False: it is dead, `gone` will follow.
    virtual bool tell(Worker& worker, const nlohmann::json& message, int file = -1) = 0;
    virtual void kill(Worker& worker) = 0;
    // How many more could be started, as far as ports go.
    virtual size_t ports_left() const = 0;

protected:
    Events events_;
    ImageEvent image_message_;
    ExchangeEvents exchange_;
};

}  // namespace tnr::server
