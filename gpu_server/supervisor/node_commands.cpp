// See node_commands.hpp.
#include "gpu_server/supervisor/node_commands.hpp"

#include <ostream>
#include <vector>

#include "gpu_server/supervisor/print.hpp"
#include "gpu_server/supervisor/state_folder.hpp"

namespace tnr::server {
namespace {

Result<std::unique_ptr<NodeAdmin>> open_nodes(const NodeOptions& options) {
    if (!options.store.empty()) {
        auto address = etcd::parse_address(options.store);
        if (!address) return address.error();
        return make_etcd_admin(*address);
    }
    auto folder = StateFolder::find(options.state);
    if (!folder) return folder.error();
    return folder->open_nodes();
}

using Row = std::vector<std::string>;

}  // namespace

Result<> list_nodes(const NodeOptions& options, std::ostream& out) {
    auto nodes = open_nodes(options);
    if (!nodes) return nodes.error();
    auto view = (*nodes)->view();
    if (!view) return view.error();
    std::map<std::string, int> claims;
    for (auto& [name, claim] : view->claims) ++claims[claim.node];
    std::vector<Row> rows{{"NODE", "STATE", "GPUS (FREE OF ALL)", "CLAIMS", "VERSION", "ADDRESS"}};
    for (auto& [name, node] : view->nodes) {
        if (node.fence == 0) {
            rows.push_back({name, node.draining ? "gone, draining" : "gone", "-", "-", "-", "-"});
            continue;
        }
        std::string gpus;
        for (auto& [type, count] : node.types)
            gpus += (gpus.empty() ? "" : ", ") + type + " " + std::to_string(count.free) + "/" +
                    std::to_string(count.total);
        // Drained: nothing is left that would be lost.
        std::string state = !node.draining ? "ready" : claims[name] > 0 ? "draining" : "drained";
        rows.push_back(
            {name, state, gpus.empty() ? "-" : gpus, std::to_string(claims[name]), node.version, node.address});
    }
    print_table(out, rows);
    return Ok{};
}

Result<> drain_node(const NodeOptions& options, bool on, std::ostream& out) {
    auto nodes = open_nodes(options);
    if (!nodes) return nodes.error();
    if (auto done = (*nodes)->drain(options.node, on); !done) return done;
    out << (on ? options.node +
                     " takes no new programs once it has heard of this, within a second; those that run go on. "
                     "tnr-gpu-server nodes shows when it is drained\n"
               : options.node + " takes new programs again\n");
    return Ok{};
}

Result<> remove_node(const NodeOptions& options, std::ostream& out) {
    auto nodes = open_nodes(options);
    if (!nodes) return nodes.error();
    if (auto done = (*nodes)->remove(options.node); !done) return done;
    out << "Removed " << options.node << "\n";
    return Ok{};
}

}  // namespace tnr::server
