// The server's key, and for a while the one before it: `rotate-key` beside a running server puts a new one into the state
// folder, and from then on connections are served with whichever of the two the client knows.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_server/supervisor/state_folder.hpp"

namespace tnr::server {

class ServerKeys {
public:
    // `folder` is copied; nothing is read before refresh().
    explicit ServerKeys(StateFolder folder) : folder_(std::move(folder)) {}

    // Reads what is in the folder now. What cannot be read leaves all as it was. `now_ms`: since 1970.
    Result<> refresh(int64_t now_ms);

    // Any thread: what clients are to know, and what may open their first message, the newest first.
    std::string public_key() const;
    // For asking other nodes, as what clients know this one by.
    wire::KeyPair pair() const;
    using Secret = std::array<unsigned char, 32>;
    std::vector<Secret> secrets() const;

private:
    const StateFolder folder_;
    mutable Mutex mutex_;
    wire::KeyPair pair_ TNR_GUARDED_BY(mutex_);
    std::vector<Secret> secrets_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::server
