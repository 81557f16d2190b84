// What NVIDIA's data sheets say about the types of GPU that pools have, by the names that pools give them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tnr::cli {

struct GpuModel {
    const char* name;  // "a100-80gb"
    const char* architecture;
    double bf16_tflops;  // tensor cores, without sparsity, accumulating in fp32; 0: it has no bf16
    double gb_per_s;     // of its memory
    double compute;      // capability: 8.0 has bf16, 8.9 has fp8, 10.0 has fp4
    int memory_gb;       // of 10^9 bytes, as it is sold
};
std::vector<GpuModel> all_gpu_models();
// Nothing for a type that we do not know.
std::optional<GpuModel> gpu_model(const std::string& type);

}  // namespace tnr::cli
