// See metrics.hpp. To add one: a line here, and where it is of use one in packaging/grafana/tnr-pool.json; a test checks both.
#include "gpu_server/watch/metrics.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <utility>

namespace tnr::watch {
namespace {

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.15g", value);
    return text;
}

class Text {
public:
    using Labels = std::initializer_list<std::pair<const char*, std::string>>;

    void family(const char* name, const char* type, const char* help) {
        name_ = name;
        text_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
    }
    void sample(Labels labels, double value, const char* suffix = "") {
        text_ += name_ + suffix;
        const char* before = "{";
        for (auto& [label, content] : labels) {
            text_ += std::string(before) + label + "=\"" + escaped(content) + "\"";
            before = ",";
        }
        text_ += (labels.size() ? "} " : " ") + number(value) + "\n";
    }
    void single(const char* name, const char* type, const char* help, double value) {
        family(name, type, help);
        sample({}, value);
    }
    void histogram(const char* name, const char* help, const Histogram& histogram) {
        family(name, "histogram", help);
        uint64_t below = 0;
        for (size_t step = 0; step < Histogram::bounds.size(); ++step) {
            below += histogram.counts[step];
            sample({{"le", number(Histogram::bounds[step])}}, static_cast<double>(below), "_bucket");
        }
        sample({{"le", "+Inf"}}, static_cast<double>(histogram.count()), "_bucket");
        sample({}, histogram.sum, "_sum");
        sample({}, static_cast<double>(histogram.count()), "_count");
    }
    std::string take() { return std::move(text_); }

private:
    static std::string escaped(const std::string& text) {
        std::string safe;
        for (char c : text) {
            if (c == '\\' || c == '"') safe += '\\';
            safe += c == '\n' ? ' ' : c;
        }
        return safe;
    }
    std::string name_, text_;
};

constexpr double ms_per_s = 1000;

void add_nodes(Text& text, const PoolState& state) {
    text.family("tnr_build_info", "gauge", "1, of each node with the version that it runs.");
    for (auto& node : state.nodes) text.sample({{"node", node.name}, {"version", node.version}}, 1);
    text.family("tnr_node_start_time_seconds", "gauge", "When the node's server started, since 1970.");
    for (auto& node : state.nodes) text.sample({{"node", node.name}}, static_cast<double>(node.since_ms) / ms_per_s);
    text.family("tnr_node_stopping", "gauge", "1 while the node takes no new claims because it is to stop.");
    for (auto& node : state.nodes) text.sample({{"node", node.name}}, node.ending);
}

void add_gpus(Text& text, const PoolState& state) {
    std::map<std::pair<std::string, std::string>, std::map<std::string, int>> counts;  // by node and type
    for (auto& gpu : state.gpus) {
        auto& states = counts[{gpu.node, gpu.type}];
        for (const char* known : {"free", "claimed", "kept", "wiping", "broken"}) states[known] += 0;
        ++states[gpu.state];
    }
    text.family("tnr_gpus", "gauge",
                "GPUs by state: free, claimed, kept for their last owner's next program, wiping, broken.");
    for (auto& [which, states] : counts)
        for (auto& [name, count] : states)
            text.sample({{"node", which.first}, {"type", which.second}, {"state", name}}, count);
    std::map<std::string, std::pair<double, double>> memory;  // by type: granted, all
    for (auto& gpu : state.gpus) {
        memory[gpu.type].first += static_cast<double>(gpu.granted_bytes);
        memory[gpu.type].second += static_cast<double>(gpu.memory_bytes);
    }
    text.family("tnr_gpu_memory_granted_bytes", "gauge", "Memory of GPUs that programs may use now.");
    for (auto& [type, bytes] : memory) text.sample({{"type", type}}, bytes.first);
    text.family("tnr_gpu_memory_bytes", "gauge", "Memory that there is.");
    for (auto& [type, bytes] : memory) text.sample({{"type", type}}, bytes.second);
}

void add_now(Text& text, const PoolState& state) {
    std::map<std::string, int> claims, waiting;
    int64_t longest_ms = 0;
    size_t sessions = 0;
    for (auto& gpu : state.gpus) claims[gpu.type] += 0, waiting[gpu.type] += 0;
    for (auto& claim : state.claims) {
        ++claims[claim.gpu];
        sessions += claim.sessions.size();
    }
    for (auto& each : state.queue) {
        ++waiting[each.gpu];
        longest_ms = std::max(longest_ms, each.waited_ms);
    }
    text.family("tnr_claims", "gauge", "Claims that hold GPUs now.");
    for (auto& [type, count] : claims) text.sample({{"type", type}}, count);
    text.single("tnr_sessions", "gauge", "Programs that use GPUs now.", static_cast<double>(sessions));
    text.family("tnr_queue_length", "gauge", "Programs that wait for GPUs of others.");
    for (auto& [type, count] : waiting) text.sample({{"type", type}}, count);
    text.single("tnr_queue_longest_wait_seconds", "gauge", "How long the one has waited that has waited longest.",
                static_cast<double>(longest_ms) / ms_per_s);
}

void add_totals(Text& text, const Totals& totals) {
    text.single("tnr_claims_total", "counter", "Claims that were made.", static_cast<double>(totals.claims));
    text.single("tnr_sessions_total", "counter", "Programs that were given a worker.",
                static_cast<double>(totals.sessions));
    text.family("tnr_requests_total", "counter", "Control requests by operation.");
    for (auto& [op, count] : totals.requests) text.sample({{"op", op}}, static_cast<double>(count));
    text.family("tnr_refusals_total", "counter", "Control requests that were answered with an error, by its kind.");
    std::map<std::string, uint64_t> refusals = totals.refusals;
    for (const char* kind : {"usage", "auth", "not_found", "network", "remote", "internal"}) refusals[kind] += 0;
    for (auto& [kind, count] : refusals) text.sample({{"kind", kind}}, static_cast<double>(count));
    text.family("tnr_claim_bytes_total", "counter", "Bytes that programs sent to GPUs, and got back.");
    text.sample({{"direction", "up"}}, totals.bytes_up);
    text.sample({{"direction", "down"}}, totals.bytes_down);
    text.single("tnr_gpu_held_seconds_total", "counter", "GPU-seconds that claims lasted.", totals.held_s);
    text.single("tnr_gpu_busy_seconds_total", "counter", "GPU-seconds of these in which a GPU had unfinished work.",
                totals.busy_s);
    text.family("tnr_gpu_wipes_total", "counter", "Times that a GPU's memory was overwritten.");
    text.sample({{"result", "done"}}, static_cast<double>(totals.wipes));
    text.sample({{"result", "failed"}}, static_cast<double>(totals.wipes_failed));
    text.single("tnr_gpu_wiped_bytes_total", "counter", "Memory that was overwritten.", totals.wiped_bytes);
    text.single("tnr_gpu_wipe_checked_bytes_total", "counter", "Of these, chosen at random, read back.",
                totals.wipe_checked_bytes);
    text.histogram("tnr_claim_latency_seconds", "From a program's request to the answer that gives it a worker.",
                   totals.claim_s);
    text.histogram("tnr_queue_wait_seconds", "How long programs waited in the queue that got a GPU.", totals.queue_s);
    text.histogram("tnr_gpu_wipe_seconds", "How long wipes took.", totals.wipe_s);
}

}  // namespace

std::string metrics_text(const PoolState& state) {
    Text text;
    add_nodes(text, state);
    add_gpus(text, state);
    add_now(text, state);
    add_totals(text, state.totals);
    return text.take();
}

std::string process_metrics_text() {
    Text text;
    uint64_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    text.single("process_resident_memory_bytes", "gauge", "Memory of the supervisor.",
                static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)));
    std::error_code error;
    std::filesystem::directory_iterator open("/proc/self/fd", error);
    if (!error)
        text.single("process_open_fds", "gauge", "Descriptors that the supervisor has open.",
                    static_cast<double>(std::distance(begin(open), end(open))));
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    text.single("process_max_fds", "gauge", "Descriptors that it may have.", static_cast<double>(limit.rlim_cur));
    return text.take();
}

}  // namespace tnr::watch
