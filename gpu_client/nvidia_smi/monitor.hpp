// nvidia-smi dmon and pmon: one line for each GPU or process, again and again, for people and for awk.
#pragma once

#include <string>
#include <vector>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

// What stands in the columns, and in which form.
struct MonitorOptions {
    std::string groups;                       // the letters of -s; empty: those that NVIDIA's tool shows
    std::string when;                         // -o: D a date, T the time, before each line
    static constexpr int heading_lines = 20;  // between two headings
};

// The headings, and the lines of this moment. An Error of kind usage names a letter that there is not.
Result<std::string> device_heading(const MonitorOptions& options);
std::string device_lines(const System& system, const MonitorOptions& options);
Result<std::string> process_heading(const MonitorOptions& options);
std::string process_lines(const System& system, const MonitorOptions& options);

}  // namespace tnr::smi
