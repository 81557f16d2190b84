// See bench.hpp.
#include "tests/gpu_server/ptx/bench.hpp"

#include <fstream>
#include <sstream>

namespace tnr::ptx::test {

Bench::Bench(const std::vector<Source>& linked) {
    auto loaded = load(linked);
    if (!loaded) FAIL(loaded.error().what);
    module_ = *loaded;
    for (auto& global : module_->globals()) addresses_.push_back(memory_->allocate(global.size));
    for (size_t k = 0; k < addresses_.size(); ++k)
        module_->initialise(k, addresses_, {reinterpret_cast<std::byte*>(addresses_[k]), module_->globals()[k].size});
}

Bench Bench::from_file(const std::string& path) {
    return Bench(read_file(path));
}

const Kernel& Bench::find(const std::string& name) const {
    for (auto& kernel : module_->kernels())
        if (kernel.name == name) return kernel;
    for (auto& kernel : module_->kernels())
        if (kernel.name.find(name) != std::string::npos) return kernel;
    FAIL("no kernel " << name);
    return module_->kernels()[0];
}

Report Bench::run_with(const Kernel& kernel, Dim3 grid, Dim3 block, const Options& options,
                       const std::vector<std::byte>& parameters) {
    Launch launch;
    launch.module = module_.get();
    launch.kernel = kernel.index;
    launch.global_addresses = addresses_;
    launch.grid = grid;
    launch.block = block;
    launch.dynamic_shared_bytes = options.shared;
    launch.parameters = parameters;
    launch.cooperative = options.cooperative;
    launch.cluster = options.cluster;
    launch.memory = memory_.get();
    launch.print = [](void* to, std::string_view text) { *static_cast<std::string*>(to) += text; };
    launch.print_context = &printed;
    launch.cancelled = options.cancelled;
    return ptx::run(launch, options.threads);
}

std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    INFO(path);
    REQUIRE(in);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

std::string module_of(const std::string& body, int parameters) {
    std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(";
    for (int p = 0; p < parameters; ++p) text += std::string(p ? ", " : "") + ".param .u64 p" + std::to_string(p);
    return text + ")\n{\n" + body + "\nret;\n}\n";
}

}  // namespace tnr::ptx::test
