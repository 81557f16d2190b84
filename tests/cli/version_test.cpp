// `tnr version` and `tnr --version`.
#include "cli/commands/version.hpp"

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("both ways of asking for the version say the same", "[cli][version]") {
    test::FakeSession fake;
    CHECK(fake.document({"version"}) == fake.document({"--version"}));
    CHECK(fake.document({"version"})["protocol"].is_number_integer());
    CHECK(fake.tnr({"--version"}) == 0);
    CHECK(fake.out.str().starts_with("tnr "));
}
