// The driver's handles of one kind by the client's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "gpu_server/worker/limits.hpp"

namespace tnr::worker {

template <class T>
class NumberedHandles {
public:
    // Null when the number is unknown.
    T* find(uint64_t number) {
        auto found = map_.find(number);
        return found == map_.end() ? nullptr : &found->second;
    }
    bool add(uint64_t number, T handle) {
        return map_.size() < handles_max && map_.emplace(number, std::move(handle)).second;
    }
    size_t size() const { return map_.size(); }
    void remove(uint64_t number) { map_.erase(number); }
    template <class Which>
    void remove_if(Which which) {
        std::erase_if(map_, [&](auto& entry) { return which(entry.second); });
    }
    auto begin() { return map_.begin(); }
    auto end() { return map_.end(); }

private:
    std::unordered_map<uint64_t, T> map_;
};

}  // namespace tnr::worker
