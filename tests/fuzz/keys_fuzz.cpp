// Any text as a private key file, a public key's line or a cloud-init document's host key: what is read can be written
// again and is the same key.
#include <cstddef>
#include <cstdint>

#include "cli/ssh/keys.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tnr::ssh;
    std::string text(reinterpret_cast<const char*>(data), size);
    if (auto blob = blob_of_line(text); blob && blob->size() > size) __builtin_trap();
    auto key = parse_private_file(text);
    if (!key) return 0;
    auto again = parse_private_file(private_file(*key, "again"));
    if (!again || again->seed != key->seed || again->public_key != key->public_key) __builtin_trap();
    return 0;
}
