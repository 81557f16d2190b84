// Which certificate authorities this computer trusts. Systems differ, and our libcurl and OpenSSL, being linked in, know
// only the places of the system that they were built on.
#pragma once

#include <string>

namespace tnr::http {

// The file below `root` in which the system keeps them; empty where there is none.
std::string system_authorities(const std::string& root = "/");

}  // namespace tnr::http
