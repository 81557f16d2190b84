// CURVE keys through ZeroMQ's own helpers; ids from the kernel.
#include "gpu_client/protocol/keys.hpp"

#include <sys/random.h>
#include <zmq.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

namespace tnr::wire {

using Z85Text = std::array<char, 41>;  // 40 characters and the NUL that ZeroMQ writes

KeyPair make_key_pair() {
    Z85Text public_key{}, secret_key{};
    if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0)
        throw std::runtime_error("libzmq was built without CURVE");  // a broken build, nothing a user can do
    return {public_key.data(), secret_key.data()};
}

bool looks_like_key(const std::string& z85) {
    std::array<uint8_t, 32> raw{};
    return z85.size() == 40 && zmq_z85_decode(raw.data(), z85.c_str()) != nullptr;
}

std::string public_of(const std::string& secret_key) {
    Z85Text public_key{};
    if (!looks_like_key(secret_key) || zmq_curve_public(public_key.data(), secret_key.c_str()) != 0) return {};
    return public_key.data();
}

std::string random_id() {
    std::array<unsigned char, 16> bytes{};
    if (getentropy(bytes.data(), bytes.size()) != 0) std::abort();  // cannot happen for so few
    std::string digits;
    for (auto byte : bytes) {
        digits += "0123456789abcdef"[byte >> 4];
        digits += "0123456789abcdef"[byte & 15];
    }
    return digits;
}

}  // namespace tnr::wire
