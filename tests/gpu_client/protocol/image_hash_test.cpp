// The hash of code images, against values that Python's hashlib made by the definition in the protocol's README.
#include <vector>

#include "gpu_client/protocol/image_hash.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

static std::vector<std::byte> image_of(size_t bytes) {
    std::vector<std::byte> image(bytes);
    for (size_t i = 0; i < bytes; ++i) image[i] = static_cast<std::byte>(i * i >> 3);
    return image;
}

static std::string hash_of(std::span<const std::byte> image) {
    return wire::to_hex(wire::hash_of_image({&image, 1}));
}

TEST_CASE("an image's hash is what the README defines", "[image_hash]") {
    CHECK(hash_of(image_of(0)) == "4888058959405a40c8436c37dacfd10c9ee3b4c098bdc85c1913053f9911b6e8");
    CHECK(hash_of(image_of(1)) == "098b9b3a63fc509122b3e41087b1e346fb5800864cbb1547508b70b598a6599f");
    CHECK(hash_of(image_of(1 << 20)) == "cad205f222c8890ff1578a766a8ebc06a349c4339ed9da1831f5a9339c0aae4e");
    CHECK(hash_of(image_of((1 << 20) + 1)) == "18de143ba0e5afa815ccccb7e65164bdd8b6ddc913a1d000637aa0c736886467");
    CHECK(hash_of(image_of(20'000'000)) == "d2d142f947ea6667c5c8850a24577b1fcf098bc344e9d6ebd16e6d90b3e38933");
}

TEST_CASE("an image's hash does not depend on how it lies in memory", "[image_hash]") {
    auto image = image_of(5'000'000);
    std::span<const std::byte> all(image);
    for (size_t cut : {size_t{0}, size_t{16}, size_t{1} << 20, size_t{3'000'001}, image.size()}) {
        const std::span<const std::byte> parts[] = {all.first(cut), all.subspan(cut)};
        CHECK(wire::to_hex(wire::hash_of_image(parts)) == hash_of(all));
    }
}

TEST_CASE("every bit counts", "[image_hash]") {
    auto image = image_of(3'000'000);
    auto before = hash_of(image);
    for (size_t at : {size_t{0}, size_t{1} << 20, image.size() - 1}) {
        image[at] ^= std::byte{1};
        CHECK(hash_of(image) != before);
        image[at] ^= std::byte{1};
    }
    image.push_back(std::byte{0});
    CHECK(hash_of(image) != before);
}

TEST_CASE("a hash is read back from its digits, and from nothing else", "[image_hash]") {
    auto digits = hash_of(image_of(3));
    auto hash = wire::image_hash_from_hex(digits);
    REQUIRE(hash);
    CHECK(wire::to_hex(*hash) == digits);
    for (auto& wrong : {std::string(), digits.substr(1), digits + "0", "../" + digits.substr(3), "G" + digits.substr(1),
                        "A" + digits.substr(1)})
        CHECK_FALSE(wire::image_hash_from_hex(wrong));
}
