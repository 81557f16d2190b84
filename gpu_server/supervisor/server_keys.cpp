// See server_keys.hpp.
#include "gpu_server/supervisor/server_keys.hpp"

#include <zmq.h>

#include "gpu_server/pool/log.hpp"

namespace tnr::server {

static ServerKeys::Secret raw(const std::string& secret_key) {
    ServerKeys::Secret bytes{};
    zmq_z85_decode(bytes.data(), secret_key.c_str());
    return bytes;
}

Result<> ServerKeys::refresh(int64_t now_ms) {
    const bool first = public_key().empty();
    auto keys = first ? folder_.server_keys() : folder_.kept_server_keys();
    if (!keys) return keys.error();
    auto old = folder_.old_server_key();
    if (!old) return old.error();
    bool both = *old && now_ms < (*old)->until_ms && (*old)->keys.public_key != keys->public_key;
    LockGuard lock(mutex_);
    const bool two = secrets_.size() == 2;
    if (!first && pair_.public_key != keys->public_key) log(LogLevel::info, "the server's key is another now");
    if (!first && two && !both) log(LogLevel::info, "the server's old key is worthless now");
    pair_ = *keys;
    secrets_ = {raw(keys->secret_key)};
    if (both) secrets_.push_back(raw((*old)->keys.secret_key));
    return Ok{};
}

std::string ServerKeys::public_key() const {
    LockGuard lock(mutex_);
    return pair_.public_key;
}

wire::KeyPair ServerKeys::pair() const {
    LockGuard lock(mutex_);
    return pair_;
}

std::vector<ServerKeys::Secret> ServerKeys::secrets() const {
    LockGuard lock(mutex_);
    return secrets_;
}

}  // namespace tnr::server
