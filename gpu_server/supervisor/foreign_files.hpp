// Descriptors that workers send. Closing one can block: a socket's for as long as its SO_LINGER says, which whoever
// made it has chosen, and so can closing a local socket in whose queue another one lies. The loop must not wait for
// that.
//
// Nor may another child be started while we have one: it has it, too, until its program begins, and would be the one to
// close it. So they are laid aside at once, and what is queued for us from a worker is taken out before its line is
// closed.
#pragma once

#include <vector>

#include "api_client/base/handles.hpp"
#include "gpu_server/supervisor/reaper.hpp"

namespace tnr::server {

// True for what workers have reason to send: memory files, and files of the driver's device. Closing those never
// blocks.
bool is_file_or_device(const UniqueFd& file);

// Closes them without waiting. A process that ends does not linger, so the last one to have them is a child that does
// nothing but end.
void lay_aside(std::vector<UniqueFd> files, Reaper& reaper);

}  // namespace tnr::server
