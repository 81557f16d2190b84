// What remoting costs, row by row, over whatever way this process reaches its GPU. `remoting_bench.py` runs every row in a
// process of its own, through networks with delays, and makes tables of it.
//
// One line of JSON per figure on stdout. Exit status 0, or 1: one of the counts (round trips, memory) is over its limit,
// 2: wrong usage, 125: a call failed. Times never fail it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "tests/bench/rows.hpp"

namespace tnr::bench {

static constexpr Row all_rows[] = {
    {"launch_sync", "launch + stream synchronize", launch_and_synchronize},
    {"event_query", "event record, then query until done", record_and_query},
    {"mem_info", "cuMemGetInfo", memory_info},
    {"step", "500 launches, 3 copies in, 4 bytes out, synchronize", step},
    {"step_pageable", "the same with pageable memory", step_pageable},
    {"launch", "asynchronous launches, enough to fill the credit window", launches},
    {"settings", "launches with an attribute, an occupancy and a flag each", launches_with_settings},
    {"structs", "launches with a struct of 4 KiB, with and without pinned memory", struct_launches},
    {"alloc", "alloc + free", allocate_and_free},
    {"small_copy", "synchronous 4 KiB to the device", small_copy},
    {"copies", "256 MiB each way beside raw TCP", copies},
    {"claim", "claim to first answer", claim},
    {"code", "first launch of a process that carries 400 MB of code", code},
    {"graphs", "launches of a graph of 200 nodes, 20 per synchronize", graph_launches},
    {"graph_nodes", "a graph of 200 nodes made one by one, and its kernels changed", graph_nodes},
    {"growth", "round trips and memory of 100,000 launches", memory_growth},
    {"threads", "slope over threads", threads},
    {"modules", "slope over modules", modules},
    {"streams", "slope over streams", streams},
    {"devices", "slope over devices", devices},
};

std::span<const Row> rows() {
    return all_rows;
}

}  // namespace tnr::bench

int main(int count, char** words) {
    using namespace tnr::bench;
    CLI::App app("What remoting costs; remoting_bench.py makes tables of it");
    Options options;
    std::vector<std::string> wanted;
    bool list = false;
    app.add_option("--only", wanted, "Rows to run (default: all)")->delimiter(',');
    app.add_flag("--list", list, "Print the rows' names and what they measure");
    app.add_flag("--quick", options.quick, "Tiny counts: only whether everything works");
    app.add_option("--host", options.way.host, "Where a proxy listens that forwards to 127.0.0.1");
    app.add_option("--ping-port", options.way.ping_port, "A port that it forwards, for the bare ping-pong");
    app.add_option("--tcp-port", options.way.tcp_port, "A port that it forwards, for raw TCP");
    app.add_option("--seed", options.seed, "What the code consists of; a server keeps what it has seen");
    app.add_option("--counts-port", options.counts_port, "Where it tells what has passed");
    try {
        app.parse(count, words);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    for (auto& row : rows()) {
        if (list) std::cout << row.name << "\t" << row.what << "\n";
        bool chosen = wanted.empty() || std::find(wanted.begin(), wanted.end(), row.name) != wanted.end();
        if (chosen && !list) row.run(options);
    }
    return too_many() ? 1 : 0;
}
