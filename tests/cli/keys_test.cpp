// Our keys are OpenSSH's: its own tools read them and agree.
#include <cstdio>
#include "tests/support/catch.hpp"

#include "api_client/base/files.hpp"
#include "cli/ssh/keys.hpp"
#include "tests/cli/sshd.hpp"

using namespace tnr;

static std::string output_of(const std::string& command) {
    std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), ::pclose};
    std::string text;
    for (int byte; (byte = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(byte);
    return text;
}

TEST_CASE("ssh-keygen reads the private keys we write", "[ssh][keys]") {
    test::TemporaryFolder folder;
    auto key = ssh::load_or_create_key(folder / "key", "a comment");
    REQUIRE(key);
    CHECK(output_of("ssh-keygen -y -f " + (folder / "key")) == ssh::public_line(*key, "a comment") + "\n");
    CHECK(output_of("ssh-keygen -l -f " + (folder / "key.pub")).find(ssh::fingerprint(ssh::public_blob(*key))) !=
          std::string::npos);
}

TEST_CASE("we read the private keys that ssh-keygen writes", "[ssh][keys]") {
    test::TemporaryFolder folder;
    output_of("ssh-keygen -q -t ed25519 -N '' -C '' -f " + (folder / "key"));
    auto key = ssh::load_or_create_key(folder / "key", "");
    REQUIRE(key);
    CHECK(test::read_text(folder / "key.pub").compare(0, 80, ssh::public_line(*key, "")) == 0);
}

TEST_CASE("a key file that is cut short, of another kind or protected is refused with a reason", "[ssh][keys]") {
    std::string whole = ssh::private_file(*ssh::generate_key(), "");
    for (size_t length = 0; length + 2 < whole.find("-----END"); length += 7) {
        CHECK_FALSE(ssh::parse_private_file(whole.substr(0, length)));
        CHECK_FALSE(ssh::parse_private_file(whole.substr(0, length) + "\n-----END OPENSSH PRIVATE KEY-----\n"));
    }
    test::TemporaryFolder folder;
    output_of("ssh-keygen -q -t ed25519 -N secret -f " + (folder / "key"));
    auto locked = ssh::load_or_create_key(folder / "key", "");
    REQUIRE_FALSE(locked);
    CHECK(locked.error().what.find("passphrase") != std::string::npos);
    CHECK(ssh::parse_private_file(whole));
}

TEST_CASE("a key is made once, readable by its owner alone", "[ssh][keys]") {
    test::TemporaryFolder folder;
    auto first = ssh::load_or_create_key(folder / "sub/key", "x");
    auto second = ssh::load_or_create_key(folder / "sub/key", "x");
    REQUIRE(first);
    REQUIRE(second);
    CHECK(first->seed == second->seed);
    CHECK(output_of("stat -c %a " + (folder / "sub/key")) == "600\n");
}
