// The part of HTTP/1.1 that a page for reading needs: one request, without a body.
#pragma once

#include <string>
#include <string_view>

namespace tnr::watch {

struct HttpRequest {
    std::string method;
    std::string path;  // without the query
    std::string host;  // as the target says if it does, else the header, in small letters; may be empty
};

enum class HttpParsed { incomplete, complete, malformed };

// Foreign bytes: all that has come so far. Never throws, and takes time in proportion to their length.
HttpParsed parse_http_request(std::string_view bytes, HttpRequest& request);

// "localhost", "127.0.0.1:14980", "[::1]": an address, or this machine's own name for itself. Another name may be one that
// a page of somebody else's made to stand for our address, so that it could read us in its visitor's browser.
bool names_no_stranger(std::string_view host);

}  // namespace tnr::watch
