// What a new machine is told.
#include "cli/user_data.hpp"

#include <cstdlib>

#include "tests/support/catch.hpp"
#include "tests/support/files.hpp"

using namespace tnr;

TEST_CASE("a new machine drops the keys of ours that its disk has brought, and no others", "[cli][start]") {
    const std::string text = cli::user_data("twin", "secret\n", "ssh-ed25519 AAAA twin", "ssh-ed25519 AAAA tnr");
    // The last word of the command that runs once, between its quotes.
    const size_t begin = text.find("cloud-init-per, instance, tnr-keys, sh, -c, \"f=");
    REQUIRE(begin != std::string::npos);
    const size_t quote = text.find('"', begin), end = text.find('"', quote + 1);
    REQUIRE(text.compare(end, 3, "\"]\n") == 0);
    std::string script = text.substr(quote + 1, end - quote - 1);
    CHECK(script.find('\\') == std::string::npos);  // YAML would read it as the beginning of another letter
    const std::string home = std::string("/home/") + cli::login_user;
    REQUIRE(script.find(home) != std::string::npos);

    test::TemporaryFolder folder;
    script.replace(script.find(home), home.size(), folder.path());
    auto run = [&] { return std::system(script.c_str()); };
    CHECK(run() == 0);  // a new disk has none
    REQUIRE(std::system(("mkdir '" + (folder / ".ssh") + "'").c_str()) == 0);
    test::write_text(folder / ".ssh/authorized_keys",
                     "ssh-ed25519 AAAB tnr\nssh-ed25519 AAAC a friend of tnr\nssh-rsa AAAD\nssh-ed25519 AAAE tnr\n");
    CHECK(run() == 0);
    CHECK(test::read_text(folder / ".ssh/authorized_keys") == "ssh-ed25519 AAAC a friend of tnr\nssh-rsa AAAD\n");
}
