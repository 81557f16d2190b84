// How many connections each key has open. Used on Zap's thread only, which hears both of handshakes and of ends.
#pragma once

#include <map>
#include <string>

namespace tnr::server {

class Connections {
public:
    explicit Connections(size_t per_key_max) : per_key_max_(per_key_max) {}

    // A connection with this descriptor belongs to `key`. False: the key has as many as it may; it shall be refused.
    bool opened(int descriptor, const std::string& key);
    // Also of one that never told a key.
    void closed(int descriptor);
    size_t of(const std::string& key) const;

private:
    size_t per_key_max_;
    std::map<int, std::string> keys_;
    std::map<std::string, size_t> counts_;
};

}  // namespace tnr::server
