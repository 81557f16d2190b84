// See fork_and_exit.hpp.
#include "gpu_client/cuda/fork_and_exit.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/pool.hpp"
#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/profile_writer.hpp"
#include "gpu_client/cuda/watched_calls.hpp"

namespace tnr::cuda {

// How long exit waits for the worker's farewell. It takes one round trip when all is well.
static constexpr std::chrono::milliseconds farewell_timeout{500};
// File descriptors that the child looks at. Ours are opened early, hence low.
static constexpr int descriptors_searched = 1024;

// A thread that the exiting program has abandoned may call on. It is held this long, so that it is not inside the CUDA
// runtime when that takes itself apart; a thread that somebody still joins gets its error after this.
static constexpr std::chrono::milliseconds late_call_held_for{100};

static sockaddr_in worker_address{};
static std::thread::id exiting_thread;

// Runs when the process exits or the library is unloaded. At exit it is the first: handlers run in reverse order, and
// cuInit registers this one when the CUDA runtime has registered its own. So the runtime finds the driver gone and
// does not take apart what other threads are using. Whatever is called later gets CUDA_ERROR_DEINITIALIZED.
static void say_goodbye();

void remember_endpoint(const std::string& endpoint) {
    auto colon = endpoint.rfind(':');
    auto slashes = endpoint.find("//");
    if (colon == std::string::npos || slashes == std::string::npos || colon < slashes + 2) return;
    auto host = endpoint.substr(slashes + 2, colon - slashes - 2);
    sockaddr_in address{};
    if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return;  // a name: TCP alone must tell the worker
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::strtoul(endpoint.c_str() + colon + 1, nullptr, 10)));
    worker_address = address;
}

// In the child, between fork and exec: only async-signal-safe calls.
static void child_begins() {
    auto before = library_state.load();
    if (before == LibraryState::uninitialized) return;
    library_state = LibraryState::forked;
    calls_watched = false;
    abandon_profile();
    for (int fd = 3; worker_address.sin_port != 0 && fd < descriptors_searched; ++fd) {
        sockaddr_in peer{};
        socklen_t length = sizeof peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
        bool ours = peer.sin_family == AF_INET && peer.sin_port == worker_address.sin_port &&
                    peer.sin_addr.s_addr == worker_address.sin_addr.s_addr;
        if (ours) ::close(fd);
    }
}

void watch_fork_and_exit() {
    static auto* once = new std::once_flag;
    std::call_once(*once, [] {
        ::pthread_atfork(nullptr, nullptr, child_begins);
        std::atexit(say_goodbye);
    });
}

void late_call() {
    if (std::this_thread::get_id() != exiting_thread) std::this_thread::sleep_for(late_call_held_for);
}

static void say_goodbye() {
    auto before = LibraryState::ready;
    exiting_thread = std::this_thread::get_id();
    if (!library_state.compare_exchange_strong(before, LibraryState::ended)) return;
    finish_profile();
    auto sessions = open_sessions();
    std::vector<const wire::Link*> links;
    for (auto* session : sessions) try {
            links.push_back(&session->link());
            if (!session->lost()) session->say_goodbye(farewell_timeout);
        } catch (...) {  // a process that cannot say goodbye is noticed by its closed connection
        }
    print_stats(links);
}

}  // namespace tnr::cuda
