// See http_request.hpp.
#include "gpu_server/watch/http_request.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

namespace tnr::watch {

static std::string lower(std::string_view text) {
    std::string small(text);
    for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return small;
}

static std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

static bool printable(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

// "gpu-1:14980", "[::1]". A user's name before it is nothing to ask us with.
static bool names_host(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) ||
               std::string_view("-._~%!$&'()*+,;=:[]").find(c) != std::string_view::npos;
    });
}

// "http://gpu-1:14980/metrics": what a proxy is asked, and we must take, too (RFC 9112, 3.2.2). What is left is the path.
static bool take_host(std::string_view& target, std::optional<std::string>& host) {
    constexpr std::string_view scheme = "http://";
    if (lower(target.substr(0, scheme.size())) != scheme) return false;
    target.remove_prefix(scheme.size());
    const auto name = target.substr(0, target.find_first_of("/?#"));
    if (name.empty() || name.front() == ':' || !names_host(name)) return false;
    host = lower(name);
    target.remove_prefix(name.size());
    return true;
}

// "GET /metrics?x=1 HTTP/1.1". `host`: what the target says, which counts more than the header.
static bool parse_first_line(std::string_view line, HttpRequest& request, std::optional<std::string>& host) {
    auto first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first == last) return false;
    auto method = line.substr(0, first), target = line.substr(first + 1, last - first - 1),
         version = line.substr(last + 1);
    if (method.empty() || !printable(method) || !printable(target)) return false;
    if (method == "OPTIONS" && target == "*") target = "/";  // of the whole server (RFC 9112, 3.2.4)
    if (!target.starts_with('/') && !take_host(target, host)) return false;
    if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
    request.method = method;
    request.path = target.substr(0, target.find_first_of("?#"));
    if (request.path.empty()) request.path = "/";
    return true;
}

HttpParsed parse_http_request(std::string_view bytes, HttpRequest& request) {
    auto end = bytes.find("\r\n\r\n");
    if (end == std::string_view::npos) return HttpParsed::incomplete;
    request = {};
    auto head = bytes.substr(0, end);
    auto line_end = std::min(head.find("\r\n"), head.size());
    bool has_host = false;
    std::optional<std::string> host;
    const auto first_line = head.substr(0, line_end);
    if (!parse_first_line(first_line, request, host)) return HttpParsed::malformed;
    while (line_end < head.size()) {
        head.remove_prefix(line_end + 2);
        line_end = std::min(head.find("\r\n"), head.size());
        auto line = head.substr(0, line_end);
        auto colon = line.find(':');
        // "Host : x" and a second Host are what a proxy between may read otherwise than we do.
        if (colon == std::string_view::npos || colon == 0 || !printable(line.substr(0, colon)))
            return HttpParsed::malformed;
        if (lower(line.substr(0, colon)) != "host") continue;
        if (std::exchange(has_host, true)) return HttpParsed::malformed;
        request.host = lower(trimmed(line.substr(colon + 1)));
        if (!names_host(request.host)) return HttpParsed::malformed;
    }
    if (host) request.host = std::move(*host);
    // HTTP/1.1 demands it (RFC 9112, 3.2), and who leaves it out is not asked whom he means.
    return has_host || first_line.ends_with("HTTP/1.0") ? HttpParsed::complete : HttpParsed::malformed;
}

bool names_no_stranger(std::string_view host) {
    std::string name(host);
    if (name.starts_with('[')) {
        name = name.substr(1, name.find(']') - 1);
    } else if (std::count(name.begin(), name.end(), ':') == 1) {
        name = name.substr(0, name.find(':'));
    }
    in6_addr scratch{};
    return name.empty() || name == "localhost" || inet_pton(AF_INET, name.c_str(), &scratch) == 1 ||
           inet_pton(AF_INET6, name.c_str(), &scratch) == 1;
}

}  // namespace tnr::watch
