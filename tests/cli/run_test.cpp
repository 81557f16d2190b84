// `tnr run` and what it ends with.
#include "cli/commands/run.hpp"

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("a program that is not there ends as in a shell", "[cli][run]") {
    test::FakeSession fake;
    CHECK(fake.tnr({"run", "--gpu", "h100", "--", "no-such-program-anywhere"}) == 127);
    CHECK(fake.err.str().find("tnr: cannot run no-such-program-anywhere") != std::string::npos);
    CHECK(fake.tnr({"run", "--gpu", "h100", "--", "/etc/passwd"}) == 126);
    for (const char* name : {"TNR_CONFIG", "TNR_POOL", "TNR_GPU"}) ::unsetenv(name);
}
