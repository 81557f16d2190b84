// See background_thread.hpp.
#include "gpu_client/cuda/background_thread.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <thread>

namespace tnr::cuda {

void start_background_thread(std::function<void()> run) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([run = std::move(run)] {
        ::prctl(PR_SET_NAME, "tnr");  // whoever looks at the program's threads can tell ours
        run();
    }).detach();  // inherits the mask
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace tnr::cuda
