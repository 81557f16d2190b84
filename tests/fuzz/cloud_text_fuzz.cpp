// What clouds and their tools wrote: bodies shown by `--explain`, from which no secret may get out, and files with credentials.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api_client/http/redact.hpp"
#include "api_client/providers/aws/xml.hpp"
#include "api_client/tool_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    // Not one that could come about in what is put in its place.
    const std::string secret = text.substr(0, 12);
    if (secret.size() == 12 && std::string("(hidden)").find(secret.front()) == std::string::npos)
        if (tnr::http::without(text, {secret}).find(secret) != std::string::npos) std::abort();
    (void)tnr::http::redacted(text, {secret.size() == 12 ? secret : "nothing that is there"});
    for (char separator : {'=', ':'}) (void)tnr::settings_of(text, separator);
    (void)tnr::sections_of(text);
    if (auto xml = tnr::aws::Xml::parse(text)) {
        (void)tnr::aws::text(xml->root(), "Errors/Error/Code");
        for (auto item : tnr::aws::items(xml->root(), "reservationSet")) (void)tnr::aws::tag(item, "tnr");
    }
    return 0;
}
