// The hash is RFC 1319's, with its own test vectors; the answer's are recordings of what cudart accepted.
#include "gpu_client/cuda/integrity.hpp"

#include <string>
#include "tests/support/catch.hpp"

using namespace tnr::cuda;

static std::string hex(const Digest& digest) {
    std::string text;
    for (uint8_t byte : digest) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

static Digest md2_of(const std::string& text) {
    return md2({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

static IntegrityQuestion recorded_question() {
    IntegrityQuestion question;
    question.driver_version = 12080;
    question.version = 12082;
    question.process = 0x2fa423;
    question.thread = 0xf79c1000;
    question.cudart_table = 0x7ffff6958240;
    question.integrity_table = 0x7ffff6958220;
    question.function = 0x7ffff2aaf4a0;
    question.unix_seconds = 0x682b9cee;
    return question;
}

TEST_CASE("MD2 gives the digests of RFC 1319", "[integrity]") {
    CHECK(hex(md2_of("")) == "8350e5a3e24c153df2275c9f80692773");
    CHECK(hex(md2_of("abc")) == "da853b0d3f88d99b30283a69e6ded6bb");
    CHECK(hex(md2_of("abcdefghijklmnopqrstuvwxyz")) == "4e8ddff3650292ab5a4108c3aa47940b");
}

TEST_CASE("the integrity answer is what cudart accepts", "[integrity]") {
    auto question = recorded_question();
    SECTION("without a device") {
        CHECK(hex(integrity_answer(question)) == "0779ef5e4ffa2dd207527503d1907bfa");
    }
    SECTION("with one") {
        IntegrityDevice device{{}, 0, 2, 0};
        const uint8_t uuid[16] = {0x9a, 0xfe, 0x2b, 0x8a, 0xac, 0x25, 0x2d, 0x38,
                                  0xea, 0x37, 0xae, 0xc5, 0x6d, 0x71, 0x32, 0x5f};
        std::copy(uuid, uuid + 16, device.uuid.bytes);
        question.devices.push_back(device);
        CHECK(hex(integrity_answer(question)) == "4448a171b026cef76c8c3e39051b02dd");
    }
    SECTION("its first two questions have fixed answers") {
        question.version = 13000;
        CHECK(hex(integrity_answer(question)) == "5c67cb031c184133e8d14c1faa83d38e");
        question.version = 13001;
        CHECK(hex(integrity_answer(question)) == "5c67cb031c184118e8d14c1faa83d38e");
    }
}
