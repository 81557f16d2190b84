// The one rule for machines' names.
#include "api_client/base/machine_name.hpp"

#include "tests/support/catch.hpp"

#include "api_client/providers/local/local.hpp"
#include "world.hpp"

using namespace tnr;
using namespace tnr::test;

TEST_CASE("a machine's name is a plain word", "[name]") {
    for (const char* good : {"a", "demo", "gpu-7", "a1", "a23456789012345678901234567890z"})
        CHECK(check_machine_name(good));
    for (const char* bad : {"", "7gpu", "-a", "a-", "Demo", "a_b", "a b", "a.b", "..", "a/b", "../../etc", "a\n", "ü",
                            "a234567890123456789012345678901z"}) {
        auto checked = check_machine_name(bad);
        INFO(bad);
        REQUIRE(!checked);
        CHECK(checked.error().kind == Error::Kind::usage);
        CHECK(checked.error().hint.find("small letters") != std::string::npos);
    }
}
