// See process_room.hpp.
#include "gpu_client/protocol/process_room.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "api_client/base/descriptors.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr::wire {

namespace {

// 0, or what forbids it.
int try_threads(size_t count) {
    interrupt::SignalsBlocked blocked;
    std::latch end(1);
    std::vector<std::thread> started;
    int error = 0;
    try {
        for (size_t i = 0; i < count; ++i) started.emplace_back([&end] { end.wait(); });
    } catch (const std::system_error& refused) {
        error = refused.code().value();
    }
    end.count_down();
    for (auto& thread : started) thread.join();
    return error;
}

int try_descriptors(size_t count) {
    std::vector<UniqueFd> opened;
    for (size_t i = 0; i < count; ++i)
        if (!opened.emplace_back(make_socket(AF_UNIX, SOCK_STREAM, Waits::yes))) return errno;
    return 0;
}

}  // namespace

Result<> room_for(size_t threads, size_t descriptors) {
    if (int error = try_descriptors(descriptors))
        return Error{Error::Kind::internal, std::string("this process may open no more files: ") + strerror(error),
                     "`ulimit -n` tells how many it may have"};
    if (int error = try_threads(threads))
        return Error{Error::Kind::internal, std::string("this process may start no more threads: ") + strerror(error),
                     "`ulimit -u`, or the limit of processes of its container, tells how many it may have"};
    return Ok{};
}

}  // namespace tnr::wire
