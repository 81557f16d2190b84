// `tnr start --setup FILE`: a script of the user's own that runs once on a new machine.
#pragma once

#include <functional>
#include <string>

#include "cli/machine_access.hpp"
#include "cli/ui/progress.hpp"

namespace tnr::cli {

// It is kept in the record, which a `start` that repeats a failed one needs.
inline constexpr size_t setup_bytes_max = size_t{256} << 10;

// The record wants the script at `path` from now on. The one that it has had already is not run again.
// `on_wait` as for read_users_file().
Result<> wish_setup(Record& record, const std::string& path, const std::function<void()>& on_wait);
bool wants_setup(const Record& record);
// Runs it, shows its output, and marks the record when it has ended well; whoever calls saves that.
Result<> run_setup(Record& record, MachineAccess& access, ui::Progress& progress);

}  // namespace tnr::cli
