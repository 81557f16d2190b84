// How much GPU memory a transformer takes, and on how many GPUs of a type it fits: `tnr gpus --for`.
//
// P parameters, B sequences of S tokens at a time. Where only P is known, its layers L and width H are taken to be those
// of the usual models: P = 12·L·H² (Kaplan et al. 2020, "Scaling Laws for Neural Language Models"), H = 128·L.
//   weights      P × bytes of the type
//   gradients    P × the same (training)
//   optimizer    P × 12 for Adam in mixed precision: weights, momentum and variance in fp32; P × 8 where the weights are
//                fp32 themselves (Rajbhandari et al. 2020, "ZeRO")
//   activations  34·S·B·H bytes a layer at 2 bytes a value, with attention that keeps no S² table (Korthikanti et al.
//                2022, "Reducing Activation Recomputation in Large Transformer Models"); training keeps those of all
//                layers, inference those of one
//   KV cache     2·L·H × bytes × S × B (inference). Models whose heads share keys (GQA) take a fraction of it.
// Of a GPU's memory 90 % is counted, which is also vLLM's default: the driver, CUDA's context and fragments take the rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/pool.hpp"

namespace tnr::cli {

struct Job {
    bool trains = false;
    double parameters = 0;
    std::string dtype = "bf16";
    int batch = 1, context = 4096;
};
// `purpose` is "train" or "infer", `parameters` "7b" or "350m", counts are decimal numbers; empty: as above. An Error of
// kind usage says what is wrong.
Result<Job> parse_job(const std::string& purpose, const std::string& parameters, const std::string& dtype,
                      const std::string& batch, const std::string& context);

struct Needs {
    double weights = 0, gradients = 0, optimizer = 0, activations = 0, kv_cache = 0;  // bytes
    double total() const { return weights + gradients + optimizer + activations + kv_cache; }
};
Needs needs_of(const Job& job);
// "13.0 GiB weights + 2.1 GiB KV cache + …"
std::string needs_text(const Needs& needs);

struct Fit {
    GpuType type;
    int gpus = 0;  // how many it takes, all memory split evenly; 0: more than the pool has
    std::string why = {};
    std::optional<double> per_hour() const;
};
// The types that fit come first, cheapest first; where the pool tells no price, fewer GPUs and less memory.
std::vector<Fit> fits_of(const Job& job, const std::vector<GpuType>& types);

}  // namespace tnr::cli
