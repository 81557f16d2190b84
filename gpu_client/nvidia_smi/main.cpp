// nvidia-smi for machines whose GPU is elsewhere: the options that people and scripts use, answered by
// libnvidia-ml.so.1.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "gpu_client/nvidia_smi/csv.hpp"
#include "gpu_client/nvidia_smi/fields.hpp"
#include "gpu_client/nvidia_smi/report.hpp"
#include "gpu_client/nvidia_smi/table.hpp"

using namespace tnr;
using namespace tnr::smi;

namespace {

struct Options {
    bool list = false, help_query = false, query = false;
    ReportOptions report = {};
    std::string query_gpu, query_processes, format = "", only;
    double loop_s = 0;
    int loop_ms = 0;
};

Result<std::string> answer(const Options& options) {
    auto system = read_system(options.only);
    if (!system) return system.error();
    if (options.list) return list(*system);
    if (options.query) return report(*system, options.report);
    if (options.query_gpu.empty() && options.query_processes.empty()) return table(*system);
    auto format = parse_format(options.format);
    if (!format) return format.error();
    if (!options.query_gpu.empty()) return query_gpus(*system, options.query_gpu, *format);
    return query_processes(*system, options.query_processes, *format);
}

int complain(const Error& error) {
    std::fprintf(stderr, "nvidia-smi: %s\n", error.what.c_str());
    if (!error.hint.empty()) std::fprintf(stderr, "hint: %s\n", error.hint.c_str());
    return error.kind == Error::Kind::usage ? 2 : 9;  // 9: what NVIDIA's own says when there is no driver
}

int run(const Options& options) {
    auto pause = options.loop_ms > 0 ? std::chrono::milliseconds(options.loop_ms)
                                     : std::chrono::milliseconds(static_cast<long>(options.loop_s * 1000));
    while (true) {
        auto text = answer(options);
        if (!text) return complain(text.error());
        std::fwrite(text->data(), 1, text->size(), stdout);
        if (std::fflush(stdout) != 0) return 1;  // nobody reads any more
        if (pause.count() == 0) return 0;
        std::this_thread::sleep_for(pause);
    }
}

int print_fields() {
    std::puts("Fields for --query-gpu:");
    for (auto& field : gpu_fields()) std::printf("  %s\n", field.name);
    std::puts("Fields for --query-compute-apps:");
    for (auto& field : process_fields()) std::printf("  %s\n", field.name);
    return 0;
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
    app.add_option("-i,--id", options.only, "only this GPU: index, UUID or bus id");
    app.add_option("--query-gpu", options.query_gpu, "comma-separated fields, see --help-query-gpu");
    app.add_option("--query-compute-apps", options.query_processes, "the same for processes: pid,process_name,…");
    app.add_option("--format", options.format, "csv[,noheader][,nounits]");
    app.add_option("-l,--loop", options.loop_s, "again every so many seconds");
    app.add_option("--loop-ms", options.loop_ms, "again every so many milliseconds");
    app.add_flag("--help-query-gpu", options.help_query, "list the fields");
    CLI11_PARSE(app, argc, argv);
    return options.help_query ? print_fields() : run(options);
}
