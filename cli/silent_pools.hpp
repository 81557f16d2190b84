// Addresses of pools that said nothing a moment ago: ~/.cache/tnr/silent_pools.json. They are asked all the same, each time;
// but one command has waited for as long as one should, so the next ones wait for less. Only a cache: what cannot be read
// or written is no matter.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tnr::cli {

class SilentPools {
public:
    explicit SilentPools(std::string path) : path_(std::move(path)) {}

    // Within the last minute before `now` (seconds since 1970).
    bool lately(const std::string& address, int64_t now) const;
    // A silence counts from the first command that it cost its time, so every minute one waits for long again.
    void note(const std::string& address, bool silent, int64_t now) const;

    // For how long such an address is waited for. A connection takes four times the way there and back.
    static constexpr std::chrono::milliseconds patience{1'000};

private:
    std::string path_;
};

}  // namespace tnr::cli
