// The names under which files arrive, beside the places that they are then renamed to.
//
// A large file's temporary name tells of which place, size and time it is a part, so that a later run finds what one that was
// cut off has left. Those that nobody goes on with are removed by later runs.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cli/sync/engine/tree.hpp"

namespace tnr::sync {

// The temporary name for the file that shall be `path`: short whatever the file's own name is, since that may already be
// as long as a name can be.
std::string temporary_name(const std::string& path, const std::string& letters, size_t number);
// Whether a file of that name, without its folder, is such a temporary: never copied, and removed from where files are
// copied to once it is older than any run that might still be at work on it.
bool is_temporary(const std::string& name);
bool is_abandoned(int64_t mtime);
inline constexpr std::chrono::seconds temporary_age_max{3600};

// A few letters that tell this run's temporary files from those of others.
std::string new_run();
// Instead, for a large file that shall be `place`.
std::string identity(const std::string& place, const Item& item);
// The letters in a temporary name (without its folder); empty when it is none.
std::string letters_of(const std::string& temporary);
// Where this run begins to count for names whose letters are not the run's own.
size_t first_number();

// Of a file that arrives nowhere (destination.cpp), named as temporaries are, so that it is neither copied nor kept.
inline constexpr const char* root_mode_name = ".tnr-openedup-0";

// Smaller files are sent again sooner than both sides have looked at what there is of them.
inline constexpr uint64_t resume_bytes_min = uint64_t{8} << 20;

}  // namespace tnr::sync
