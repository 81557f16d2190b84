// The driver's handles of one kind by the client's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "driver_table.hpp"
#include "gpu_server/worker/limits.hpp"

namespace tnr::worker {

template <class T>
class NumberedHandles {
public:
    explicit NumberedHandles(size_t most = handles_max) : most_(most) {}

    // Null when the number is unknown.
    T* find(uint64_t number) {
        auto found = map_.find(number);
        return found == map_.end() ? nullptr : &found->second;
    }
    // Whether add() would enter it, or else what the call returns. Asked before the driver makes something that has no
    // number otherwise: nobody could destroy it.
    CUresult room_for(uint64_t number) const {
        if (map_.count(number) > 0) return CUDA_ERROR_INVALID_VALUE;
        return map_.size() < most_ ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool add(uint64_t number, T handle) {
        return map_.size() < most_ && map_.emplace(number, std::move(handle)).second;
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
    size_t most_;
    std::unordered_map<uint64_t, T> map_;
};

}  // namespace tnr::worker
