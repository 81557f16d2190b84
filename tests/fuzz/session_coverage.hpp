// What libFuzzer counts, brought back from another process: this program's counters and those of a library that it has
// loaded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tnr::fuzz {

class Coverage {
public:
    // `library`: from dlopen.
    explicit Coverage(void* library);

    void save();     // in the process that ends
    void restore();  // in the one that has started it

private:
    std::vector<std::span<uint8_t>> counters_;
    uint8_t* shared_ = nullptr;
};

}  // namespace tnr::fuzz
