// A real etcd for tests, in a temporary folder; and none where the machine has none, which the test then says.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>

#include "api_client/http/http.hpp"
#include "gpu_server/pool/etcd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/ports.hpp"
#include "tests/support/processes.hpp"

namespace tnr::server {

class OwnEtcd {
public:
    // Where it is not, a test that needs it says so here and does nothing.
    static bool is_there() {
        if (std::filesystem::exists("/usr/bin/etcd")) return true;
        WARN("no etcd here: nothing is tried with it (apt-get install etcd-server)");
        return false;
    }

    OwnEtcd() {
        std::string name = (std::filesystem::temp_directory_path() / "tnr-etcd-XXXXXX").string();
        folder_ = mkdtemp(name.data());
        pid_ = fork();
        if (pid_ == 0) {
            auto url = "http://127.0.0.1:" + std::to_string(port()),
                 peer = "http://127.0.0.1:" + std::to_string(port() + 1);
            (void)!freopen((folder_ + "/log").c_str(), "w", stderr);
            execl("/usr/bin/etcd", "etcd", "--name", "test", "--data-dir", (folder_ + "/data").c_str(),
                  "--listen-client-urls", url.c_str(), "--advertise-client-urls", url.c_str(), "--listen-peer-urls",
                  peer.c_str(), "--initial-advertise-peer-urls", peer.c_str(), "--initial-cluster",
                  ("test=" + peer).c_str(), "--unsafe-no-fsync", nullptr);
            _exit(127);
        }
        etcd::Client client(address(), {.connect_ms = 500, .total_ms = 1'000});
        for (int i = 0; i < 300 && !client.list("/x"); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        REQUIRE(client.list("/x"));
    }
    ~OwnEtcd() {
        end();
        std::filesystem::remove_all(folder_);
    }
    // For good.
    void end() {
        if (pid_ < 0) return;
        signal(SIGCONT);
        signal(SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    int port() const { return ports_.first(); }
    etcd::Address address() const { return *etcd::parse_address("etcd://127.0.0.1:" + std::to_string(port())); }
    void signal(int number) const { test::send_signal(pid_, number); }
    // What it counts itself, for Prometheus: the sum of all lines that begin so.
    double counted(const std::string& name) const {
        http::Client client({}, {.total_ms = 5'000});
        http::Request request;
        request.url = "http://127.0.0.1:" + std::to_string(port()) + "/metrics";
        auto told = client.send(request);
        REQUIRE(told);
        double sum = 0;
        std::istringstream lines(told->body);
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with(name)) sum += std::stod(line.substr(line.rfind(' ')));
        return sum;
    }

private:
    std::string folder_;
    const test::Ports ports_{2};  // for clients, and for other members
    pid_t pid_ = -1;
};

}  // namespace tnr::server
