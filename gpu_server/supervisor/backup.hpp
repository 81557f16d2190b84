// `tnr-gpu-server backup` and `restore`: the store, and the key that clients know the server by, as one file.
#pragma once

#include <iosfwd>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::server {

// Also while a server runs on the folder: what the file holds is one moment's. The file, mode 0600, has the server's secret
// key in it; it is written whole or not at all, and never over another one. It ends with a checksum of all before.
Result<> make_backup(const std::string& state, const std::string& file, std::ostream& out);

// Onto a folder that no server runs on; nothing there is touched if the file is not, bit by bit, what was written. What is
// there is kept beside it, named *.before-restore, and only `replace` puts it aside at all.
Result<> restore_backup(const std::string& state, const std::string& file, bool replace, std::ostream& out);

}  // namespace tnr::server
