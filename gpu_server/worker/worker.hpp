// A worker process: one GPU (or the GPUs of one claim), one client, one life.
#pragma once

namespace tnr::worker {

// `control_fd`: a SOCK_SEQPACKET socket to the supervisor. `listen_fd`: a listening TCP socket for the client's
// connection. The driver's path comes in the environment (TNR_DRIVER). Warms the driver, waits for a client, serves it,
// and ends the process: the exit frees everything the driver holds.
[[noreturn]] void run_worker(int control_fd, int listen_fd);

}  // namespace tnr::worker
