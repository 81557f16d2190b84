// nvidia-smi --query-…=… --format=csv.
#pragma once

#include <string>
#include <vector>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

// What stands between commas, or others, without the spaces around it.
std::vector<std::string> split(const std::string& text, char between);

struct CsvFormat {
    bool header = true, units = true;
};
// "csv", "csv,noheader", "csv,nounits,noheader".
Result<CsvFormat> parse_format(const std::string& text);

// Whole tables as text; an unknown field is an Error that names it.
Result<std::string> query_gpus(const System& system, const std::string& fields, CsvFormat format);
Result<std::string> query_processes(const System& system, const std::string& fields, CsvFormat format);

}  // namespace tnr::smi
