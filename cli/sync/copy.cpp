// What both directions use.
#include "cli/sync/copying.hpp"

namespace tnr::sync {
Result<> Copying::room() {
    while (sftp_.crowded())
        if (auto turned = sftp_.turn(); !turned) return turned;
    return so_far();
}

Result<> Copying::settled() {
    if (auto settled = sftp_.settle(); !settled) return settled;
    return so_far();
}

}  // namespace tnr::sync
