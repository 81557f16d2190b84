// See files.hpp.
#include "api_client/providers/local/files.hpp"

#include <cerrno>

#include "api_client/base/files.hpp"

namespace tnr::local {
namespace fs = std::filesystem;

Result<> link_or_copy(const fs::path& from, const fs::path& to) {
    std::error_code failed;
    fs::create_hard_link(from, to, failed);
    if (!failed) return Ok{};
    fs::copy_file(from, to, failed);
    if (!failed) return Ok{};
    // libstdc++ reports a full disk as an input/output error.
    int error = failed.value();
    if (error == EIO && fs::space(to.parent_path(), failed).available < fs::file_size(from, failed)) error = ENOSPC;
    return file_error("cannot copy " + from.string() + " to", to, error);
}

}  // namespace tnr::local
