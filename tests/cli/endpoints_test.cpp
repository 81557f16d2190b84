// What the two words of `tnr sync` mean.
#include "cli/sync/engine/endpoints.hpp"

#include "tests/support/catch.hpp"

using namespace tnr::sync;

TEST_CASE("a word names a machine when a colon comes before any slash", "[sync]") {
    CHECK(parse_endpoint("demo:").machine == "demo");
    CHECK(parse_endpoint("demo:").path.empty());
    CHECK(parse_endpoint("demo:a/b c").path == "a/b c");
    CHECK(parse_endpoint("demo:~/x").path == "x");
    CHECK(parse_endpoint("demo:~").path.empty());
    CHECK(parse_endpoint("./demo:x").machine.empty());
    CHECK(parse_endpoint("/a:b").machine.empty());
    CHECK(parse_endpoint("plain").path == "plain");
    CHECK(parse_endpoint(":x").machine.empty());
}

TEST_CASE("a file goes into a folder, or gets the name it is given", "[sync]") {
    CHECK(final_place("./saxpy", false, "", true) == "saxpy");
    CHECK(final_place("./saxpy", false, "bin/", false) == "bin/saxpy");
    CHECK(final_place("./saxpy", false, "bin", true) == "bin/saxpy");
    CHECK(final_place("./saxpy", false, "bin", false) == "bin");
    CHECK(final_place("saxpy", false, ".", true) == "./saxpy");
    CHECK(final_place("a/saxpy", false, "/", true) == "/saxpy");
}

TEST_CASE("a folder becomes its copy, goes inside with a slash, and stands for its contents with a slash of its own",
          "[sync]") {
    for (bool there : {false, true}) {  // the same the second time
        CHECK(final_place("./src", true, "work", there) == "work");
        CHECK(final_place("./src", true, "work/", there) == "work/src");
        CHECK(final_place("./src/", true, "work", there) == "work");
        CHECK(final_place("./src/", true, "work/", there) == "work");
    }
    CHECK(final_place("./src", true, "", true) == "src");
    CHECK(final_place("./src/", true, "", true).empty());
    CHECK(final_place("results", true, ".", true) == "./results");
    CHECK(final_place(".", true, "work", false) == "work");
    CHECK(final_place("..", true, "", true).empty());
}
