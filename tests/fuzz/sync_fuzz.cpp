// Foreign bytes as either end of a sync hears them: first as a stream of frames, and then what is within as librsync's signature and
// delta, and as a line of .gitignore.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "api_client/base/handles.hpp"
#include "cli/sync/engine/delta.hpp"
#include "cli/sync/engine/frames.hpp"
#include "cli/sync/engine/ignore.hpp"
#include "cli/sync/engine/session.hpp"

namespace {

using namespace tnr;
constexpr std::string_view old_file = "what the receiver has of it";

void read_frames(std::string_view bytes) {
    UniqueFd file{::memfd_create("frames", MFD_CLOEXEC)};
    if (::write(file.get(), bytes.data(), bytes.size()) < 0 || ::lseek(file.get(), 0, SEEK_SET) != 0) return;
    sync::Inbox inbox(file.get());
    while (auto received = inbox.next()) {
        sync::Fields fields(received->fields);
        sync::SyncSettings settings;
        bool sends = false;
        (void)sync::read_hello(fields, settings, sends);
        (void)sync::error_of(fields);
        if (fields.text().size() > bytes.size() && fields.good()) __builtin_trap();
    }
}

void read_delta(std::string_view bytes) {
    size_t made = 0;
    auto old_bytes = [](uint64_t at, char* to, size_t count) -> ssize_t {
        if (at >= old_file.size()) return -1;
        count = std::min(count, old_file.size() - at);
        std::memcpy(to, old_file.data() + at, count);
        return static_cast<ssize_t>(count);
    };
    // As a receiver does: what is longer than the file was said to be ends it.
    sync::DeltaReader reader(old_bytes, [&](std::string_view piece) { return (made += piece.size()) < 100'000; });
    if (reader.take(bytes.substr(0, bytes.size() / 2), false)) (void)reader.take(bytes.substr(bytes.size() / 2), true);
}

void read_signature(std::string_view bytes) {
    auto maker = sync::DeltaMaker::from_signature(bytes);
    if (!maker) return;
    std::string_view fresh = bytes;
    (void)(*maker)->run(
        [&](char* to, size_t most) {
            size_t count = std::min(most, fresh.size());
            std::memcpy(to, fresh.data(), count);
            fresh.remove_prefix(count);
            return static_cast<ssize_t>(count);
        },
        [](std::string_view) { return true; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0] % 4) {
        case 0:
            read_frames(bytes);
            break;
        case 1:
            read_delta(bytes);
            break;
        case 2:
            read_signature(bytes);
            break;
        default: {
            size_t half = bytes.size() / 2;
            auto rules = sync::IgnoreRules::make("", {std::string(bytes.substr(0, half))}, nullptr);
            if (rules) (void)rules->ignored(std::string(bytes.substr(half)), size % 2);
        }
    }
    return 0;
}
