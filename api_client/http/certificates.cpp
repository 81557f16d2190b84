#include "api_client/http/certificates.hpp"

#include <unistd.h>

namespace tnr::http {

std::string system_authorities(const std::string& root) {
    for (const char* path : {
             "etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Gentoo
             "etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL and its kin
             "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // where that link is missing
             "etc/ssl/ca-bundle.pem",                             // openSUSE
             "etc/ssl/cert.pem",                                  // Alpine, macOS
         })
        if (::access((root + path).c_str(), R_OK) == 0) return root + path;
    return "";
}

}  // namespace tnr::http
