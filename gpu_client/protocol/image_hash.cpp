// See image_hash.hpp. BLAKE2b comes from libsodium, which libzmq needs anyway.
#include "gpu_client/protocol/image_hash.hpp"

#include <pthread.h>
#include <signal.h>
#include <sodium.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace tnr::wire {
namespace {

// One leaf of the tree. Part of the hash's definition.
constexpr size_t leaf_bytes = size_t{1} << 20;
// The keys tell leaves from the root, so that no image can be another's list of leaves.
constexpr std::string_view leaf_key = "tnr image: a leaf", root_key = "tnr image: the root";
// BLAKE2b does 1 GB/s on a core: four hash 400 MB in a tenth of a second, and memory does not give much more.
constexpr size_t hashing_threads_max = 4;
// A thread for fewer leaves costs more than it saves.
constexpr size_t leaves_per_thread_min = 8;

class Blake2b {
public:
    explicit Blake2b(std::string_view key) {
        crypto_generichash_init(&state_, reinterpret_cast<const unsigned char*>(key.data()), key.size(),
                                sizeof(ImageHash));
    }
    void add(std::span<const std::byte> bytes) {
        crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    }
    ImageHash end() {
        ImageHash hash;
        crypto_generichash_final(&state_, reinterpret_cast<unsigned char*>(hash.data()), hash.size());
        return hash;
    }

private:
    crypto_generichash_state state_;
};

size_t size_of(ImageParts parts) {
    size_t bytes = 0;
    for (auto& part : parts) bytes += part.size();
    return bytes;
}

ImageHash hash_of_leaf(ImageParts parts, size_t offset) {
    Blake2b hash(leaf_key);
    size_t left = leaf_bytes;
    for (auto part : parts) {
        if (offset >= part.size()) {
            offset -= part.size();
            continue;
        }
        auto here = part.subspan(offset, std::min(left, part.size() - offset));
        hash.add(here);
        left -= here.size();
        offset = 0;
        if (left == 0) break;
    }
    return hash.end();
}

// `work` on this thread and on up to `more` others. Fewer where the system gives none.
template <class Work>
void on_threads(size_t more, Work& work) {
    std::vector<std::thread> threads;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's, for its own threads
    try {
        while (threads.size() < more) threads.emplace_back(std::ref(work));
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    work();
    for (auto& thread : threads) thread.join();
}

}  // namespace

ImageHash hash_of_image(ImageParts parts) {
    static const int ready = sodium_init();  // finds the processor's fastest code; harmless where libzmq has done it
    (void)ready;
    uint64_t bytes = size_of(parts);
    std::vector<ImageHash> leaves((bytes + leaf_bytes - 1) / leaf_bytes);
    std::atomic<size_t> next{0};
    auto work = [&] {
        for (size_t leaf; (leaf = next.fetch_add(1)) < leaves.size();)
            leaves[leaf] = hash_of_leaf(parts, leaf * leaf_bytes);
    };
    size_t cores = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, hashing_threads_max);
    on_threads(std::min(cores - 1, leaves.size() / leaves_per_thread_min), work);

    Blake2b root(root_key);
    root.add(std::as_bytes(std::span(&bytes, 1)));
    root.add(std::as_bytes(std::span(leaves)));
    return root.end();
}

std::string to_hex(const ImageHash& hash) {
    std::string digits;
    for (auto byte : hash) {
        digits += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
        digits += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
    }
    return digits;
}

std::optional<ImageHash> image_hash_from_hex(std::string_view digits) {
    ImageHash hash;
    if (digits.size() != 2 * hash.size()) return std::nullopt;
    auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
    for (size_t i = 0; i < hash.size(); ++i) {
        int high = value(digits[2 * i]), low = value(digits[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        hash[i] = static_cast<std::byte>(high << 4 | low);
    }
    return hash;
}

}  // namespace tnr::wire
