// The thread that writes the profile (profile.hpp) to its file.
#pragma once

namespace tnr::cuda {

// cuInit: opens the file and starts the writer.
void start_profile();
// The process exits: writes what is left. Waits for the worker's part, but not for long.
void finish_profile();

}  // namespace tnr::cuda
