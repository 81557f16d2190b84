// See models.hpp. Where a model is sold with several sockets, the figures are those of the fastest (SXM): a pool's type
// does not tell them apart.
#include "cli/gpu_types/models.hpp"

#include <iterator>

namespace tnr::cli {
namespace {

// From NVIDIA's data sheets and architecture white papers. GeForce cards halve their rate when they accumulate in fp32.
constexpr GpuModel gpu_models[] = {
    {"b300", "Blackwell Ultra", 2250, 8000, 10.3, 288},
    {"b200", "Blackwell", 2250, 8000, 10.0, 180},
    {"gh200", "Hopper", 989, 4000, 9.0, 96},
    {"h200", "Hopper", 989, 4800, 9.0, 141},
    {"h100", "Hopper", 989, 3350, 9.0, 80},
    {"h100-nvl", "Hopper", 835, 3900, 9.0, 94},
    {"h20", "Hopper", 148, 4000, 9.0, 96},
    {"a100", "Ampere", 312, 1555, 8.0, 40},
    {"a100-80gb", "Ampere", 312, 2039, 8.0, 80},
    {"a30", "Ampere", 165, 933, 8.0, 24},
    {"a40", "Ampere", 149.7, 696, 8.6, 48},
    {"a10", "Ampere", 125, 600, 8.6, 24},
    {"a10g", "Ampere", 70, 600, 8.6, 24},
    {"a6000", "Ampere", 154.8, 768, 8.6, 48},
    {"rtx3090", "Ampere", 71, 936, 8.6, 24},
    {"l40s", "Ada Lovelace", 362, 864, 8.9, 48},
    {"l40", "Ada Lovelace", 181, 864, 8.9, 48},
    {"l4", "Ada Lovelace", 121, 300, 8.9, 24},
    {"rtx6000-ada", "Ada Lovelace", 364, 960, 8.9, 48},
    {"rtx4090", "Ada Lovelace", 165, 1008, 8.9, 24},
    {"rtx6000-pro", "Blackwell", 503, 1792, 12.0, 96},
    {"rtx5090", "Blackwell", 209, 1792, 12.0, 32},
    {"t4", "Turing", 0, 320, 7.5, 16},
    {"v100", "Volta", 0, 900, 7.0, 16},
    {"v100-32gb", "Volta", 0, 900, 7.0, 32},
    {"p100", "Pascal", 0, 732, 6.0, 16},
};

}  // namespace

std::vector<GpuModel> all_gpu_models() {
    return {std::begin(gpu_models), std::end(gpu_models)};
}

std::optional<GpuModel> gpu_model(const std::string& type) {
    for (const auto& model : gpu_models)
        if (type == model.name) return model;
    return std::nullopt;
}

}  // namespace tnr::cli
