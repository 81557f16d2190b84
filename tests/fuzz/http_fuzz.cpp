// What strangers send to the watch address.
#include <cstdint>
#include <cstdlib>

#include "gpu_server/watch/http_request.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tnr::watch::HttpRequest request;
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    if (tnr::watch::parse_http_request(bytes, request) != tnr::watch::HttpParsed::complete) return 0;
    (void)tnr::watch::names_no_stranger(request.host);
    if (request.path.empty() || request.path[0] != '/') std::abort();
    return 0;
}
