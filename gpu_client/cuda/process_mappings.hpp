// What is mapped in this process, and second places for what it shares with others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tnr::cuda {

struct ProcessMapping {
    uint64_t begin, end;
    bool shared, writable;
};
// In order. Empty when it cannot be read.
std::vector<ProcessMapping> process_mappings();

// Another place in this process for the shared, writable mappings among some pages: what is written there is theirs,
// whatever the program may do with them just now. The child of a fork does not inherit it. Not for several threads.
class SecondPlaces {
public:
    SecondPlaces(uint64_t address, uint64_t bytes);
    ~SecondPlaces();
    SecondPlaces(const SecondPlaces&) = delete;
    SecondPlaces& operator=(const SecondPlaces&) = delete;

    // False if the system gives no second place for what needs one.
    bool complete() const { return complete_; }
    struct Part {
        std::byte* place;  // null: the pages there have no second one
        uint64_t bytes;
    };
    // Where `bytes` at this address begin, and how many of them are there.
    Part find(uint64_t address, uint64_t bytes) const;

private:
    struct Place {
        uint64_t address, bytes;
        std::byte* place;
    };
    std::vector<Place> places_;  // by address
    bool complete_ = true;
};

}  // namespace tnr::cuda
