// Catch2's own code where it is a header (version 2): compiled here, once for all tests, for it takes most of a minute.
#define CATCH_CONFIG_RUNNER
#include "tests/support/catch.hpp"

int tnr::test::run_tests(int count, char** arguments) {
    return Catch::Session().run(count, arguments);
}
