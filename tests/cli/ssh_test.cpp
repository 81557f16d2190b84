// The SSH client against a real sshd: who is trusted, and that bytes and exit codes arrive as they are.
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/catch.hpp"

#include "cli/ssh/exec.hpp"
#include "tests/cli/sshd.hpp"

using namespace tnr;
using namespace std::chrono_literals;

static std::unique_ptr<ssh::Client> connected(const test::Sshd& sshd) {
    auto client = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
    if (!client) FAIL(client.error().what);
    return std::move(*client);
}

static ssh::Output captured(ssh::Client& client, const std::string& line, const std::string& in = "") {
    auto output = ssh::capture(client, line, in, ssh::Clock::now() + 30s);
    if (!output) FAIL(output.error().what);
    return *output;
}

TEST_CASE("a command's output streams stay apart and its exit code is its own", "[ssh]") {
    test::Sshd sshd;
    auto client = connected(sshd);
    auto output = captured(*client, "echo out; echo err >&2; exit 7");
    CHECK(output.out == "out\n");
    CHECK(output.err == "err\n");
    CHECK(output.code == 7);
    CHECK(captured(*client, "true").code == 0);
    CHECK(captured(*client, "kill -TERM $$").code == 128 + 15);
    CHECK(captured(*client, "kill -KILL $$").code == 128 + 9);
    CHECK(captured(*client, "cat", std::string("a\0b\n", 4)).out == std::string("a\0b\n", 4));
}

TEST_CASE("a short command does not wait for the next keepalive", "[ssh]") {
    test::Sshd sshd;
    auto client = connected(sshd);
    auto begun = ssh::Clock::now();
    for (int i = 0; i < 5; ++i) CHECK(captured(*client, "echo out; echo err >&2").out == "out\n");
    CHECK(ssh::Clock::now() - begun < 14s);  // one keepalive is 15 s away
}

TEST_CASE("words arrive as exactly those arguments, a single word is a shell line", "[ssh]") {
    test::Sshd sshd;
    auto client = connected(sshd);
    std::vector<std::string> words = {"printf", "%s|", "a b", "", "it's", "$HOME", "*", "ünï\n", "-x", "\\"};
    CHECK(captured(*client, ssh::shell_line(words)).out == "a b||it's|$HOME|*|ünï\n|-x|\\|");
    CHECK(captured(*client, ssh::shell_line({"echo a b | tr a c"})).out == "c b\n");
}

TEST_CASE("a machine with another host key is refused before anything is sent to it", "[ssh]") {
    test::Sshd sshd;
    auto target = sshd.target();
    target.host_key = ssh::public_line(*ssh::generate_key(), "planted");
    auto client = ssh::connect_when_ready(target, ssh::Clock::now() + 30s);
    REQUIRE_FALSE(client);
    CHECK(client.error().kind == Error::Kind::remote);
    CHECK(client.error().what.find("is not 'demo'") != std::string::npos);
    CHECK(client.error().what.find(ssh::fingerprint(*ssh::blob_of_line(target.host_key))) != std::string::npos);
    CHECK(sshd.accepted() == 1);  // a wrong key is never tried again
}

TEST_CASE("a user key that the machine does not know is an error of kind auth", "[ssh]") {
    test::Sshd sshd;
    auto target = sshd.target();
    target.key = *ssh::generate_key();
    auto client = ssh::Client::connect(target, ssh::Clock::now() + 30s);
    REQUIRE_FALSE(client);
    CHECK(client.error().kind == Error::Kind::auth);
}

// A port that listens and never says anything (`listening`), or one that refuses.
struct DeafPort {
    UniqueFd socket{::socket(AF_INET, SOCK_STREAM, 0)};
    int port = 0;
    explicit DeafPort(bool listening) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
        port = ntohs(address.sin_port);
        if (listening) REQUIRE(::listen(socket.get(), 4) == 0);
    }
};

TEST_CASE("a port that refuses and one that never answers are errors of kind network that name it", "[ssh]") {
    for (bool listening : {false, true}) {
        DeafPort deaf{listening};
        ssh::Target target{
            "demo", "127.0.0.1", deaf.port, "nobody", ssh::public_line(*ssh::generate_key(), ""), *ssh::generate_key()};
        auto begun = ssh::Clock::now();
        auto client = ssh::connect_when_ready(target, begun + 1s);
        REQUIRE_FALSE(client);
        CHECK(client.error().kind == Error::Kind::network);
        CHECK(client.error().what.find(std::to_string(deaf.port)) != std::string::npos);
        CHECK(ssh::Clock::now() - begun < 15s);
    }
}

TEST_CASE("a connection that breaks ends the command with an error, not a hang", "[ssh]") {
    test::Sshd sshd;
    auto client = connected(sshd);
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    std::thread killer([&] {
        char byte;
        [[maybe_unused]] auto got = ::read(ready[0], &byte, 1);  // the command runs now
        sshd.kill_connections();
    });
    auto code = ssh::run(*client, {"echo; exec sleep 100", {}}, {-1, ready[1], -1});
    ::close(ready[1]);
    killer.join();
    ::close(ready[0]);
    REQUIRE_FALSE(code);
    CHECK(code.error().kind == Error::Kind::network);
}

// Bytes that no short period repeats, computed from their position.
static unsigned char byte_at(uint64_t position) {
    return static_cast<unsigned char>((position * 2654435761u) >> 13);
}

static void feed(int fd, uint64_t total) {
    std::vector<unsigned char> piece(1 << 16);
    for (uint64_t at = 0; at < total;) {
        size_t length = std::min<uint64_t>(piece.size(), total - at);
        for (size_t i = 0; i < length; ++i) piece[i] = byte_at(at + i);
        for (size_t sent = 0; sent < length;) {
            ssize_t took = ::write(fd, piece.data() + sent, length - sent);
            if (took <= 0) return;
            sent += static_cast<size_t>(took);
        }
        at += length;
    }
}

// How many bytes came before the first wrong one.
static uint64_t check(int fd) {
    std::vector<unsigned char> piece(1 << 16);
    uint64_t right = 0;
    for (;;) {
        ssize_t got = ::read(fd, piece.data(), piece.size());
        if (got <= 0) return right;
        for (ssize_t i = 0; i < got; ++i)
            if (piece[static_cast<size_t>(i)] != byte_at(right++)) return right - 1;
    }
}

TEST_CASE("200 MB go through a command both ways at once, across several key renewals", "[ssh]") {
    constexpr uint64_t total = 200'000'000;
    test::Sshd sshd{"RekeyLimit 32M\n"};
    auto client = connected(sshd);
    int in[2], out[2];
    REQUIRE(::pipe(in) == 0);
    REQUIRE(::pipe(out) == 0);
    uint64_t right = 0;
    std::thread writer([&] { feed(in[1], total), ::close(in[1]); });
    std::thread reader([&] { right = check(out[0]), ::close(out[0]); });
    auto code = ssh::run(*client, {"cat", {}}, {in[0], out[1], -1});
    ::close(out[1]);
    ::close(in[0]);
    writer.join();
    reader.join();
    if (!code) FAIL(code.error().what);
    CHECK(*code == 0);
    CHECK(right == total);
}

TEST_CASE("bytes arrive as they are with each cipher and each way to check them", "[ssh]") {
    std::string in(300'000, 0);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<char>(i * 7 + i / 253);
    for (std::string methods :
         {"Ciphers aes128-gcm@openssh.com", "Ciphers aes256-gcm@openssh.com", "Ciphers aes128-ctr\nMACs hmac-sha2-256",
          "Ciphers aes256-ctr\nMACs hmac-sha2-512", "Ciphers aes128-ctr\nMACs hmac-sha2-256-etm@openssh.com"}) {
#ifndef LIBSSH2_WHOLE_PACKETS
        if (!methods.starts_with("Ciphers aes128-ctr\nMACs hmac-sha2-256\n")) continue;  // older ones know no others
#endif
        INFO(methods);
        test::Sshd sshd{methods + "\n"};
        auto client = connected(sshd);
        CHECK(captured(*client, "cat", in).out == in);
        CHECK(captured(*client, "cat", "x").out == "x");
    }
}

#ifdef LIBSSH2_WHOLE_PACKETS
// Processor time, which depends little on who else is at work here, beside what OpenSSL alone takes for the same in pieces of 16
// bytes: half of it, and without our patch of libssh2 more than all of it.
TEST_CASE("packets are encrypted whole, with AES-GCM", "[ssh]") {
    auto user_time = [] {
        rusage usage{};
        ::getrusage(RUSAGE_THREAD, &usage);
        return static_cast<double>(usage.ru_utime.tv_sec) + 1e-6 * static_cast<double>(usage.ru_utime.tv_usec);
    };
    constexpr size_t bytes = size_t{2} << 20, times = 32;
    test::Sshd sshd;
    auto client = connected(sshd);
    CHECK(std::string(libssh2_session_methods(client->session(), LIBSSH2_METHOD_CRYPT_CS)) == "aes128-gcm@openssh.com");
    const std::string in(bytes, 'x');
    double begun = user_time();
    for (size_t i = 0; i < times; ++i) CHECK(captured(*client, "cat >/dev/null", in).code == 0);
    const double ours = user_time() - begun;
    Handle<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free> context{EVP_CIPHER_CTX_new()};
    const unsigned char key[16] = {};
    REQUIRE(EVP_EncryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, key, key) == 1);
    unsigned char block[16] = {};
    begun = user_time();
    for (size_t i = 0; i < times * bytes / sizeof block; ++i) EVP_Cipher(context.get(), block, block, sizeof block);
    CHECK(ours < user_time() - begun);
}
#endif

TEST_CASE("a slow reader gets all of the output, and the other stream's end with it", "[ssh]") {
    test::Sshd sshd;
    auto client = connected(sshd);
    int out[2];
    REQUIRE(::pipe(out) == 0);
    uint64_t taken = 0;
    std::thread slow([&] {
        std::vector<char> piece(4096);
        while (ssize_t got = ::read(out[0], piece.data(), piece.size()))
            taken += static_cast<uint64_t>(std::max<ssize_t>(got, 0));
    });
    auto code = ssh::run(*client, {"head -c 20000000 /dev/zero; echo end >&2", {}}, {-1, out[1], -1});
    ::close(out[1]);
    slow.join();
    ::close(out[0]);
    CHECK(taken == 20'000'000);
    REQUIRE(code);
}
