// A profile's file, in the Trace Event Format: one JSON object whose "traceEvents" grow. Each add() ends with the
// closing brackets, which the next one overwrites, so the file is strict JSON at any time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::cuda {

class ProfileFile {
public:
    // Viewers take about 2 GiB and are slow long before.
    static constexpr uint64_t bytes_max = uint64_t{1} << 30;

    // If the file exists already (another process of the same program writes it), the process's id is added to the
    // name: out.json, out.1234.json.
    static Result<ProfileFile> create(const std::string& path);
    // Adds events, each ended by ",\n". False if they no longer fit or the disk is full; the file is then as it was.
    bool add(std::string&& events);
    const std::string& path() const { return path_; }

private:
    ProfileFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

    UniqueFd fd_;
    std::string path_;
    uint64_t end_ = 0;  // of the events: the brackets stand here
};

// The text as a JSON string, with quotes.
std::string json_text(std::string_view text);

}  // namespace tnr::cuda
