// See leftovers.hpp.
#include "cli/sync/engine/leftovers.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/sync/engine/file_times.hpp"
#include "cli/sync/engine/temporary.hpp"

namespace tnr::sync {

Result<> Leftovers::look_in(uint32_t folder) {
    auto names = destination_.names_in(folder);
    if (!names) return names.error();
    for (const auto& name : *names)
        if (is_temporary(name)) names_[{folder, letters_of(name)}].push_back(name);
    return Ok{};
}

const std::vector<std::string>& Leftovers::parts_of(uint32_t index) const {
    static const std::vector<std::string> none;
    auto found =
        names_.find({destination_[index].parent, identity(destination_.name_of(index), destination_[index].item)});
    return found == names_.end() ? none : found->second;
}

void Leftovers::sweep() {
    for (const auto& [where, names] : names_) {
        auto folder = destination_.folder(where.first);
        for (const auto& name : names) {
            struct stat found;
            if (folder && ::fstatat((*folder)->get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
                is_abandoned(modified_at(found).tv_sec))
                ::unlinkat((*folder)->get(), name.c_str(), 0);
        }
    }
}

}  // namespace tnr::sync
