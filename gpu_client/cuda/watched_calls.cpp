// See watched_calls.hpp.
#include "gpu_client/cuda/watched_calls.hpp"

#include "gpu_client/cuda/log.hpp"

namespace tnr::cuda {

bool calls_watched = logs(LogLevel::trace) || wanted_profile();

CUresult WatchedCall::ended(CUresult result, std::initializer_list<Argument> arguments) {
    slice_.end(static_cast<int>(result));
    if (logs(LogLevel::trace)) {
        char line[1000];  // what log() prints of one
        describe_call(line, sizeof line, name_, arguments, result);
        log(LogLevel::trace, "%s", line);
    }
    return result;
}

}  // namespace tnr::cuda
