// What clouds and their tools wrote: bodies shown by `--explain`, from which no secret may get out, and files with credentials.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api_client/http/redact.hpp"
#include "api_client/tool_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    // Not one that could come about in what is put in its place.
    const std::string secret = text.substr(0, 12);
    if (secret.size() == 12 && std::string("(hidden)").find(secret.front()) == std::string::npos)
        if (tnr::http::without(text, {secret}).find(secret) != std::string::npos) std::abort();
    (void)tnr::http::redacted(text, {secret.size() == 12 ? secret : "nothing that is there"});
    for (char separator : {'=', ':'}) (void)tnr::settings_of(text, separator);
    return 0;
}
