// The worker processes of this node: starts them, understands what they say, notices when they are gone.
#pragma once

#include <memory>

#include "gpu_server/supervisor/connections_here.hpp"
#include "gpu_server/supervisor/front_door.hpp"
#include "gpu_server/supervisor/gpu_source.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/reaper.hpp"
#include "gpu_server/supervisor/turns.hpp"
#include "gpu_server/supervisor/worker_groups.hpp"
#include "gpu_server/supervisor/worker_ports.hpp"
#include "gpu_server/supervisor/workers.hpp"

namespace tnr::server {

class WorkerProcesses : public Workers {
public:
    WorkerProcesses(EventLoop& loop, Reaper& reaper, const GpuSource& source, std::string host, PortRange ports)
        : loop_(loop), reaper_(reaper), source_(source), ports_(std::move(host), ports) {}
    // What the kernel holds each worker to, for each GPU that it has. Before the first is started.
    void hold(uint64_t memory_bytes_per_gpu) { memory_bytes_per_gpu_ = memory_bytes_per_gpu; }
    // Unless take_over() has found them divided.
    void divide_groups();
    // Workers have no ports of their own; clients find them behind `door`, which is at `where`. Before the first is started.
    void stand_behind(FrontDoor& door, Endpoint where) {
        front_door_ = &door;
        front_ = std::move(where);
    }
    ~WorkerProcesses() override;

    Result<Worker*> start(const std::vector<int>& gpus, const std::vector<std::string>& selectors) override;
    Result<> open_door(Worker& worker) override;
    void limit_threads(Worker& worker, size_t most) override;
    bool tell(Worker& worker, const nlohmann::json& message, int file = -1) override;
    void kill(Worker& worker) override;
    size_t ports_left() const override;

    // Of one whose client has come: is a client still connected to it?
    bool has_client(const Worker& worker, const ConnectionsHere& open) const;

    // Those that serve go over to the next server, with their groups; there may be no others (all_serve()).
    void hand_over(Handover& handover);
    Result<> take_over(Handover& handover);
    bool all_serve() const;
    // Null: there is none.
    Worker* with_id(pid_t pid) const;

    bool none() const { return workers_.empty(); }
    std::vector<Worker*> all() const;
    std::set<pid_t> ids() const;

private:
    Received hear(Worker& worker);
    void listen_to(Worker& worker);
    void listen_later(Worker& worker);
    void expect_end(Worker& worker);
    void stop_listening_to(Worker& worker);
    void read_messages(Worker& worker);
    void read_errors(Worker& worker);
    bool understand(Worker& worker, Received& received);
    Worker* take_in(std::unique_ptr<Worker> worker);
    Result<> take_over_one(Handover& handover, const nlohmann::json& told);
    void exited(Worker& worker, int status);
    Result<UniqueFd> way_in(Worker& worker);
    void close_way_in(Worker& worker);

    EventLoop& loop_;
    Reaper& reaper_;
    const GpuSource& source_;
    WorkerPorts ports_;
    FrontDoor* front_door_ = nullptr;
    Endpoint front_;
    WorkerGroups groups_;
    uint64_t memory_bytes_per_gpu_ = 0;
    Allowances messages_{worker_messages_per_second_max, worker_messages_burst};  // by tenant
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace tnr::server
