// Sending of a file only what the other end's old one does not have.
//
// First what is still at its place: the receiver hashes its file in blocks, the sender compares them with its own, and what is
// the same is copied over there. That runs at the speed of memory and is all that a database, a disk image or a
// growing log needs. Behind the last block that is at its place the content may have moved; there librsync looks for it at
// every byte. (librsync alone takes 1.5 to 2 times rsync's time for a gigabyte of which 1 % has changed.)
//
// What arrives is checked against a hash of the whole file. So a block hash of 64 bits, and librsync's shortest sums, are
// enough: a wrong match costs sending the file once more.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::sync {

// Smaller files are sent again sooner than they are compared.
inline constexpr uint64_t delta_bytes_min = uint64_t{128} << 10;
// Of one file: 64 bits a block.
inline constexpr uint64_t delta_blocks_max = uint64_t{1} << 19;
// What librsync may say of an old file's rest, about 12 bytes for each of its blocks.
inline constexpr size_t signature_bytes_max = size_t{64} << 20;
// When nothing of so much could be found in the old file, the rest is sent as it is: searching in vain runs at 60 MB/s.
inline constexpr uint64_t vain_bytes_max = uint64_t{64} << 20;

// For an old file of that size; the sender takes it from the receiver, within these limits.
uint64_t delta_block_bytes(uint64_t old_size);
bool good_block_bytes(uint64_t block, uint64_t old_size);
uint64_t block_hash(std::string_view block);

// XXH3-128 of a whole file: finds what broke on the way, not what somebody forged. SSH sees to that.
inline constexpr size_t digest_bytes = 16;
std::string digest_of(std::string_view content);
class Digest {
public:
    Digest();
    Digest(const Digest&) = delete;
    Digest& operator=(const Digest& other);
    ~Digest();
    void add(std::string_view bytes);
    void add_zeros(uint64_t count);
    std::string value() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

using Sink = std::function<bool(std::string_view)>;                        // false: stop
using Source = std::function<ssize_t(char* to, size_t most)>;              // 0 at the end, negative: it failed
using OldBytes = std::function<ssize_t(uint64_t at, char* to, size_t n)>;  // of the receiver's old file

// What librsync's side that has the old bytes tells the other one.
Result<> make_signature(const Source& old_bytes, uint64_t old_size, const Sink& sink);

// The sender's librsync.
class DeltaMaker {
public:
    static Result<std::unique_ptr<DeltaMaker>> from_signature(std::string_view signature);
    ~DeltaMaker();
    // Takes from `fresh` until its end, or until searching proves vain; true then. The delta ends in both cases.
    Result<bool> run(const Source& fresh, const Sink& sink);

private:
    struct State;
    explicit DeltaMaker(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

// The receiver's librsync.
class DeltaReader {
public:
    DeltaReader(OldBytes old_bytes, Sink sink);
    ~DeltaReader();
    // A piece of a delta; its `end` comes with the last one.
    Result<> take(std::string_view delta, bool end);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace tnr::sync
