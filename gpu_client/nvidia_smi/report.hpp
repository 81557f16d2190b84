// nvidia-smi -q: all that is known of each GPU, for people and, as XML, for programs (Telegraf, Netdata).
#pragma once

#include <string>
#include <vector>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

struct ReportOptions {
    bool xml = false;
    std::string parts = {};  // as -d takes them: "MEMORY,UTILIZATION"; empty: all
};
// An Error of kind usage names a part that there is not.
Result<std::string> report(const System& system, const ReportOptions& options);

}  // namespace tnr::smi
