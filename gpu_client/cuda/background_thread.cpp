// See background_thread.hpp.
#include "gpu_client/cuda/background_thread.hpp"

#include <sys/prctl.h>

#include <thread>

#include "api_client/base/interrupt.hpp"

namespace tnr::cuda {

void start_background_thread(std::function<void()> run) {
    interrupt::SignalsBlocked blocked;
    std::thread([run = std::move(run)] {
        ::prctl(PR_SET_NAME, "tnr");  // whoever looks at the program's threads can tell ours
        run();
    }).detach();
}

}  // namespace tnr::cuda
