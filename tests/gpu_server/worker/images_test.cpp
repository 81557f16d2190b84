// Code on its way to the driver: what a client may send, how much of it is held, and what an offer brings.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <nlohmann/json.hpp>
#include <string>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/packet.hpp"
#include "gpu_server/worker/images.hpp"
#include "gpu_server/worker/supervisor_link.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::worker;

namespace {

// A worker's end of the line, and ours in the supervisor's place. Both live as long as the process: the link's thread
// listens until then.
struct Line {
    SupervisorLink* link = nullptr;
    int supervisor = -1;

    Line() {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        supervisor = ends[0];
        timeval patience{10, 0};  // a message that does not come fails the test
        REQUIRE(setsockopt(supervisor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
        link = new SupervisorLink(UniqueFd(ends[1]));
        link->start([](const std::string&) {});
    }
    nlohmann::json hear(UniqueFd& file) const {
        std::string text(4096, '\0');
        auto packet = server::receive_packet(supervisor, text.data(), text.size());
        REQUIRE(packet.size > 0);
        file = packet.files.empty() ? UniqueFd() : std::move(packet.files.front());
        return nlohmann::json::parse(text.substr(0, static_cast<size_t>(packet.size)));
    }
    void answer(uint64_t ticket, int file) const {
        server::send_packet(supervisor, nlohmann::json{{"image", {{"ticket", ticket}}}}.dump(), file);
    }
};

std::vector<std::byte> content_of(size_t bytes, int start = 1) {
    std::vector<std::byte> content(bytes);
    for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(start));
    return content;
}
wire::ImageHash hash_of(std::span<const std::byte> image) {
    return wire::hash_of_image({&image, 1});
}
CUresult send_in_pieces(IncomingImages& images, uint64_t number, std::span<const std::byte> all, size_t piece) {
    for (size_t at = 0; at < all.size(); at += piece)
        if (auto result = images.piece(number, at, all.size(), all.subspan(at, std::min(piece, all.size() - at)));
            result != CUDA_SUCCESS)
            return result;
    return CUDA_SUCCESS;
}
bool same(const CodeImage& image, std::span<const std::byte> expected) {
    auto bytes = image.bytes();
    // The zeros behind it belong to the promise.
    for (size_t i = 0; i < 16; ++i)
        if (bytes.data()[bytes.size() + i] != std::byte{0}) return false;
    return std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end());
}
UniqueFd file_with(std::span<const std::byte> content) {
    UniqueFd file(memfd_create("test", MFD_CLOEXEC));
    REQUIRE(write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    return file;
}

}  // namespace

TEST_CASE("an image arrives in pieces, small or large, and has zeros behind it", "[images]") {
    IncomingImages images;
    // Whole pages of a file have no zeros of their own behind them.
    for (size_t bytes : {size_t{1}, size_t{5000}, wire::offered_image_bytes_min, size_t{3'000'001}}) {
        auto content = content_of(bytes);
        REQUIRE(send_in_pieces(images, 1, content, 100'000) == CUDA_SUCCESS);
        auto image = images.take(1, bytes);
        REQUIRE(image);
        CHECK(same(*image, content));
        CHECK_FALSE(images.take(1, bytes));
        if (image->file() < 0) continue;
        CHECK(pwrite(image->file(), "!", 1, 0) < 0);  // sealed
        CHECK(ftruncate(image->file(), 0) < 0);
    }
}

TEST_CASE("pieces that do not fit are refused, and what came before them is let go", "[images]") {
    IncomingImages images;
    auto content = content_of(100);
    std::span<const std::byte> all(content);
    CHECK(images.piece(1, 10, 100, all.first(10)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(images.piece(1, 0, 100, {}) == CUDA_ERROR_INVALID_VALUE);
    CHECK(images.piece(1, 0, 50, all) == CUDA_ERROR_INVALID_VALUE);
    CHECK(images.piece(1, 0, wire::image_bytes_max + 1, all) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(images.piece(1, 0, 100, all.first(50)) == CUDA_SUCCESS);
    CHECK(images.piece(1, 50, 101, all.subspan(50)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(images.piece(1, 50, 100, all.subspan(50)) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(images.piece(2, 0, 100, all.first(50)) == CUDA_SUCCESS);
    CHECK_FALSE(images.take(2, 100));
    CHECK_FALSE(images.take(3, 100));
}

TEST_CASE("images that are never loaded are bounded, in number and in bytes", "[images]") {
    IncomingImages images;
    auto content = content_of(64);
    SECTION("in number") {
        for (uint64_t number = 1; number <= wire::incoming_images_max; ++number)
            REQUIRE(images.piece(number, 0, 1000, content) == CUDA_SUCCESS);
        CHECK(images.piece(wire::incoming_images_max + 1, 0, 1000, content) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_FALSE(images.take(1, 1000));
        CHECK(images.piece(wire::incoming_images_max + 1, 0, 1000, content) == CUDA_SUCCESS);
    }
    SECTION("in bytes") {
        images.limit_bytes(1000);
        auto large = content_of(600);
        REQUIRE(images.piece(1, 0, 2000, large) == CUDA_SUCCESS);
        CHECK(images.piece(2, 0, 2000, large) == CUDA_ERROR_OUT_OF_MEMORY);
        REQUIRE(images.piece(3, 0, 2000, std::span<const std::byte>(large).first(400)) == CUDA_SUCCESS);
        CHECK(images.piece(1, 600, 2000, content) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(images.piece(4, 0, 2000, large) == CUDA_SUCCESS);  // 1 was let go
    }
}

TEST_CASE("an offer brings what has the offered hash, and nothing else", "[images]") {
    static Line line;
    IncomingImages images;
    auto content = content_of(500'000), other = content_of(500'000, 2);
    REQUIRE(images.offered(1, hash_of(content), content.size(), *line.link) == CUDA_SUCCESS);
    CHECK(images.offered(1, hash_of(content), content.size(), *line.link) == CUDA_ERROR_INVALID_VALUE);
    UniqueFd none;
    auto asked = line.hear(none);
    CHECK(asked["find_image"]["hash"] == wire::to_hex(hash_of(content)));
    CHECK(asked["find_image"]["bytes"] == content.size());
    uint64_t ticket = asked["find_image"]["ticket"];
    CHECK(images.only_offered(1, content.size()));
    CHECK_FALSE(images.only_offered(1, content.size() + 1));

    SECTION("it is there") {
        line.answer(ticket, file_with(content).get());
        auto image = images.offer(1)->wait(*line.link);
        REQUIRE(image);
        CHECK(same(*image, content));
    }
    SECTION("it is not: the pieces follow, under the same number") {
        line.answer(ticket, -1);
        CHECK_FALSE(images.offer(1)->wait(*line.link));
        REQUIRE(send_in_pieces(images, 1, content, 100'000) == CUDA_SUCCESS);
        CHECK_FALSE(images.only_offered(1, content.size()));
        auto image = images.take(1, content.size());
        REQUIRE(image);
        CHECK(same(*image, content));
        line.link->keep_image(hash_of(content), image->size(), image->file());
        UniqueFd kept;
        CHECK(line.hear(kept)["keep_image"]["bytes"] == content.size());
        auto mapped = CodeImage::map(std::move(kept), content.size());
        REQUIRE(mapped);
        CHECK(same(*mapped, content));
    }
    SECTION("it is something else, or less: that is told") {
        auto wrong = GENERATE_REF(true, false) ? other : content_of(100);
        line.answer(ticket, file_with(wrong).get());
        CHECK_FALSE(images.offer(1)->wait(*line.link));
        CHECK(line.hear(none)["damaged_image"]["hash"] == wire::to_hex(hash_of(content)));
    }
}
