// Short names for GPUs, from what drivers call them.
#include "gpu_server/pool/gpu_types.hpp"

#include "tests/support/catch.hpp"

using tnr::server::gpu_type;

TEST_CASE("a driver's name becomes the name by which users ask", "[pool]") {
    CHECK(gpu_type("NVIDIA H100 80GB HBM3") == "h100");
    CHECK(gpu_type("NVIDIA H100 PCIe") == "h100");
    CHECK(gpu_type("NVIDIA H200") == "h200");
    CHECK(gpu_type("NVIDIA B200") == "b200");
    CHECK(gpu_type("NVIDIA A100-SXM4-40GB") == "a100");
    CHECK(gpu_type("NVIDIA A100-SXM4-80GB") == "a100-80gb");
    CHECK(gpu_type("NVIDIA A100 80GB PCIe") == "a100-80gb");
    CHECK(gpu_type("Tesla V100-SXM2-16GB") == "v100");
    CHECK(gpu_type("Tesla V100-SXM2-32GB") == "v100-32gb");
    CHECK(gpu_type("Tesla T4") == "t4");
    CHECK(gpu_type("NVIDIA L4") == "l4");
    CHECK(gpu_type("NVIDIA L40S") == "l40s");
    CHECK(gpu_type("NVIDIA A10G") == "a10g");
    CHECK(gpu_type("NVIDIA RTX A6000") == "a6000");
    CHECK(gpu_type("NVIDIA GeForce RTX 4090") == "rtx4090");
    CHECK(gpu_type("NVIDIA GeForce RTX 3080 Ti") == "rtx3080-ti");
    CHECK(gpu_type("NVIDIA RTX 6000 Ada Generation") == "rtx6000-ada");
    CHECK(gpu_type("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "rtx6000-pro");
    CHECK(gpu_type("NVIDIA H100 (emulated)") == "h100");
    CHECK(gpu_type("???") == "gpu");
    CHECK(gpu_type("") == "gpu");
}
