// nvidia-smi for machines whose GPU is elsewhere: the options that people and scripts use, answered by
// libnvidia-ml.so.1.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "gpu_client/nvidia_smi/csv.hpp"
#include "gpu_client/nvidia_smi/fields.hpp"
#include "gpu_client/nvidia_smi/monitor.hpp"
#include "gpu_client/nvidia_smi/report.hpp"
#include "gpu_client/nvidia_smi/settings.hpp"
#include "gpu_client/nvidia_smi/table.hpp"
#include "gpu_client/nvidia_smi/topology.hpp"

using namespace tnr;
using namespace tnr::smi;

namespace {

struct Options {
    bool list = false, help_query = false, query = false, matrix = false;
    ReportOptions report = {};
    std::string query_gpu, query_processes, format = "", peers, file;
    std::vector<std::string> only;
    double loop_s = 0;
    int loop_ms = 0;
    MonitorOptions monitor = {};
    int count = 0;  // of the monitors; 0: for ever
    double delay_s = 1;
    const Setting* setting = nullptr;
    std::string value;  // of the setting
};

int complain(const Error& error) {
    std::fprintf(stderr, "nvidia-smi: %s\n", error.what.c_str());
    if (!error.hint.empty()) std::fprintf(stderr, "hint: %s\n", error.hint.c_str());
    return error.kind == Error::Kind::usage ? 2 : 9;  // 9: what NVIDIA's own says when there is no driver
}

// False once nobody reads any more.
bool print(const std::string& text) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

Result<std::string> answer(const Options& options) {
    auto system = read_system(options.only);
    if (!system) return system.error();
    if (options.list) return list(*system);
    if (options.matrix) return topology_matrix(*system);
    if (!options.peers.empty()) return peer_matrix(*system, options.peers);
    if (options.query) return report(*system, options.report);
    if (options.query_gpu.empty() && options.query_processes.empty()) return table(*system);
    auto format = parse_format(options.format);
    if (!format) return format.error();
    if (!options.query_gpu.empty()) return query_gpus(*system, options.query_gpu, *format);
    return query_processes(*system, options.query_processes, *format);
}

int run(const Options& options) {
    auto pause = options.loop_ms > 0 ? std::chrono::milliseconds(options.loop_ms)
                                     : std::chrono::milliseconds(static_cast<long>(options.loop_s * 1000));
    while (true) {
        auto text = answer(options);
        if (!text) return complain(text.error());
        if (!print(*text)) return 1;
        if (pause.count() == 0) return 0;
        std::this_thread::sleep_for(pause);
    }
}

using Heading = Result<std::string>(const MonitorOptions&);
using Lines = std::string(const System&, const MonitorOptions&);

int watch(const Options& options, Heading* heading, Lines* lines) {
    auto head = heading(options.monitor);
    if (!head) return complain(head.error());
    for (int done = 0, since_heading = 0; options.count == 0 || done < options.count; ++done) {
        if (done > 0) std::this_thread::sleep_for(std::chrono::duration<double>(options.delay_s));
        auto system = read_system(options.only);
        if (!system) return complain(system.error());
        auto text = lines(*system, options.monitor);
        if (done == 0 || since_heading >= MonitorOptions::heading_lines) text.insert(0, *head), since_heading = 0;
        since_heading += static_cast<int>(system->gpus.size());
        if (!print(text)) return 1;
    }
    return 0;
}

int change(const Options& options) {
    auto system = read_system(options.only);
    if (!system) return complain(system.error());
    auto [text, status] = smi::change(*system, *options.setting, options.value);
    return print(text) ? status : 1;
}

int print_fields() {
    std::puts("Fields for --query-gpu:");
    for (auto& field : gpu_fields()) std::printf("  %s\n", field.name);
    std::puts("Fields for --query-compute-apps:");
    for (auto& field : process_fields()) std::printf("  %s\n", field.name);
    return 0;
}

void add_gpus(CLI::App& app, Options& options) {
    app.add_option("-i,--id", options.only, "only these GPUs: indices, UUIDs or bus ids, with commas between")
        ->delimiter(',');
}

// dmon or pmon.
CLI::App* add_monitor(CLI::App& app, Options& options, const char* name, const char* help, const char* groups) {
    auto* monitor = app.add_subcommand(name, help);
    add_gpus(*monitor, options);
    monitor->add_option("-d,--delay", options.delay_s, "seconds between two lines")->check(CLI::PositiveNumber);
    monitor->add_option("-c,--count", options.count, "how many; for ever without")->check(CLI::NonNegativeNumber);
    monitor->add_option("-s,--select", options.monitor.groups, groups);
    monitor->add_option("-o,--options", options.monitor.when, "D: date, T: time before each line");
    monitor->add_option("-f,--filename", options.file, "write to this file");
    return monitor;
}

void add_topology(CLI::App& app, Options& options) {
    auto* topology = app.add_subcommand("topo", "how the GPUs are connected");
    add_gpus(*topology, options);
    auto* matrix = topology->add_flag("-m,--matrix", options.matrix, "the matrix of connections");
    auto* peers = topology->add_option("--p2p", options.peers, "-p2p: what works between GPUs: r, w, n, a or p");
    matrix->excludes(peers);
    topology->final_callback([=] {
        if (!*matrix && !*peers) throw CLI::RequiredError("-m or -p2p");
    });
}

bool has_one_letter(const Setting& setting) {
    return std::string_view(setting.letters).size() == 2;
}

void add_settings(CLI::App& app, Options& options) {
    constexpr const char* group = "Settings (the GPU is the pool's: refused, unless it is as wanted)";
    for (auto& setting : settings()) {
        auto choose = [&options, &setting](const std::string& value) {
            options.setting = &setting;
            options.value = value;
        };
        const bool one_letter = has_one_letter(setting);
        auto names = one_letter ? std::string(setting.letters) + "," + setting.name : std::string(setting.name);
        auto help = (one_letter ? "" : std::string(setting.letters) + ": ") + setting.title;
        if (setting.takes_value)
            app.add_option_function<std::string>(names, choose, help)->group(group);
        else
            app.add_flag_callback(
                   names, [choose] { choose(""); }, help)
                ->group(group);
    }
}

// NVIDIA's short options of several letters, which no common parser knows, as long ones.
std::vector<std::string> plain_arguments(int argc, char** argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    for (auto& argument : arguments) {
        if (argument == "-p2p") argument = "--p2p";
        if (argument == "-lms") argument = "--loop-ms";
        for (auto& setting : settings())
            if (argument == setting.letters && !has_one_letter(setting)) argument = setting.name;
    }
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    return arguments;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Shows the GPU that this machine uses across the network (tnr)."};
    app.set_version_flag("--version", "nvidia-smi (tnr) " TNR_VERSION);
    app.add_flag("-L,--list-gpus", options.list, "one line per GPU");
    auto* query = app.add_flag("-q,--query", options.query, "all that is known of each GPU");
    app.add_flag("-x,--xml-format", options.report.xml, "with -q: as XML")->needs(query);
    app.add_option("-d,--display", options.report.parts, "with -q: only these parts, such as MEMORY,UTILIZATION")
        ->needs(query);
    add_gpus(app, options);
    app.add_option("--query-gpu", options.query_gpu, "comma-separated fields, see --help-query-gpu");
    app.add_option("--query-compute-apps", options.query_processes, "the same for processes: pid,process_name,…");
    app.add_option("--format", options.format, "csv[,noheader][,nounits]");
    app.add_option("-f,--filename", options.file, "write to this file");
    auto* loop = app.add_option("-l,--loop", options.loop_s, "again every so many seconds (5 unless told)");
    loop->expected(0, 1);
    app.add_option("--loop-ms", options.loop_ms, "again every so many milliseconds");
    app.add_flag("--help-query-gpu,--help-query-compute-apps", options.help_query, "list the fields");
    add_settings(app, options);
    add_topology(app, options);
    auto* devices = add_monitor(app, options, "dmon", "a line for each GPU, again and again", "of p, u, c, v, m, e, t");
    auto* processes = add_monitor(app, options, "pmon", "a line for each process, again and again", "of u, m");
    try {
        app.parse(plain_arguments(argc, argv));
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (*loop && options.loop_s <= 0) options.loop_s = 5;
    if (!options.file.empty() && !std::freopen(options.file.c_str(), "w", stdout))
        return complain({Error::Kind::usage, "cannot write to '" + options.file + "'", ""});
    if (options.help_query) return print_fields();
    if (options.setting) return change(options);
    if (*devices) return watch(options, device_heading, device_lines);
    if (*processes) return watch(options, process_heading, process_lines);
    return run(options);
}
