// A real `tnr-gpu-server serve` in a world of its own, for one test: temp folder, port from the kernel, fake workers.
#pragma once

#include <sys/resource.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "api_client/base/handles.hpp"
#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/keys.hpp"

namespace tnr::test {

using nlohmann::json;

class Folder {
public:
    Folder();
    ~Folder();
    std::string path;
};

struct Output {
    int code = -1;
    std::string out, err;
};
// Runs tnr-gpu-server to its end.
Output run_server_command(const std::vector<std::string>& arguments);

class Server {
public:
    // `settings`: NAME=value for the fake workers. `descriptors_max`: that the server may have at most. `listen` and --state are added to the arguments.
    explicit Server(std::vector<std::string> arguments, std::vector<std::string> settings = {},
                    std::shared_ptr<Folder> folder = std::make_shared<Folder>(), rlim_t descriptors_max = 0);
    ~Server();  // SIGKILL, if it still runs

    std::string address;  // tcp://127.0.0.1:…
    std::shared_ptr<Folder> folder;
    pid_t pid = -1;

    std::string log() const;                                          // what it said so far
    std::string notes() const;                                        // what its workers did
    bool wait_for_log(const std::string& text, int times = 1) const;  // false: not within 10 s
    bool wait_for_note(const std::string& text, int times = 1) const;
    void signal(int number) const;
    int wait_for_exit();  // its code, or 128 + signal

private:
    UniqueFd out_;
};

// A client of that pool; empty keys: plain text.
std::unique_ptr<control::Client> client_of(const Server& server, const wire::ClientKeys& keys = {});
// A socket that is to connect to that pool without one; empty keys: plain text.
void sign_in(zmq::socket_t& socket, const wire::ClientKeys& keys);
// The answer, or {"error": …}. Adds "machine" for open pools when it is not empty.
json ask(control::Client& client, json request);
// To ask for a session of process 42. Without a machine, the client's key says which it is.
json session_request(const std::string& machine = "", const std::string& gpu = "h100", int count = 1);

// Of the only type that the server has.
int free_gpus(const Server& server);
// Sooner or later. False: not within 20 s.
bool wait_for_free_gpus(const Server& server, int wanted);

// A connection, over which nothing has been said.
UniqueFd knock_at(const std::string& endpoint);
// A connection to a session's worker, held open: the fake worker ends when it closes. `told`: what the pool answered.
UniqueFd connect_to(const std::string& told);

// `tnr-gpu-server user add NAME`, understood.
wire::ClientKeys enroll(const Server& server, const std::string& name);

}  // namespace tnr::test
