// `tnr support`, on a small table and on the one that this build carries.
#include "cli/commands/support.hpp"

#include <nlohmann/json.hpp>

#include "cli/install/embedded.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

constexpr const char* small_table =
    "# What runs\n\n| how | what it means |\n|---|---|\n| local | on the machine |\n| custom | by hand |\n\n"
    "| call | symbol | since CUDA | how |\n|---|---|---|---|\n"
    "| cuInit | cuInit | 2.0 | local |\n"
    "| cuMemAlloc | cuMemAlloc | 2.0 | unsupported |\n"
    "| cuMemAlloc | cuMemAlloc_v2 | 3.2 | custom |\n"
    "| cuMemAllocManaged | cuMemAllocManaged | 6.0 | unsupported |\n";

std::string carried() {
    for (const auto& file : install::embedded_files())
        if (file.name == "support.md") return std::string(file.bytes);
    return "";
}

}  // namespace

TEST_CASE("tnr support shows the symbols of a call, and says which run", "[cli][support]") {
    test::FakeSession user;
    REQUIRE(cli::support(user.session, small_table, "cumemalloc"));
    CHECK(user.said() ==
          "CALL        SYMBOL         SINCE CUDA  RUNS  HOW\n"
          "cuMemAlloc  cuMemAlloc     2.0         no    -\n"
          "cuMemAlloc  cuMemAlloc_v2  3.2         yes   custom\n");
    REQUIRE(cli::support(user.session, small_table, "MemAllocM"));
    CHECK(user.said().find("cuMemAllocManaged  cuMemAllocManaged  6.0         no") != std::string::npos);
    REQUIRE(cli::support(user.session, small_table, ""));
    CHECK(user.said() == small_table);
}

TEST_CASE("tnr support --json has every symbol with what scripts ask for", "[cli][support]") {
    test::FakeSession user;
    user.session.json = true;
    REQUIRE(cli::support(user.session, small_table, ""));
    auto calls = nlohmann::json::parse(user.said())["calls"];
    REQUIRE(calls.size() == 4);
    CHECK(calls[2] == nlohmann::json{{"call", "cuMemAlloc"},
                                     {"symbol", "cuMemAlloc_v2"},
                                     {"since_cuda", "3.2"},
                                     {"how", "custom"},
                                     {"runs", true}});
    CHECK(calls[3]["runs"] == false);
}

TEST_CASE("a name that no call has is answered with what to try", "[cli][support]") {
    test::FakeSession user;
    auto unknown = cli::support(user.session, small_table, "cuMemAlocate");
    REQUIRE_FALSE(unknown);
    CHECK(unknown.error().kind == Error::Kind::not_found);
    CHECK(unknown.error().what == "no call of the CUDA driver has 'cuMemAlocate' in its name");
    CHECK(unknown.error().hint.find("tnr support memcpy") != std::string::npos);
    auto runtime = cli::support(user.session, small_table, "cudaMalloc");
    REQUIRE_FALSE(runtime);
    CHECK(runtime.error().hint.starts_with("cuda… are the runtime's"));
    CHECK(user.said().empty());
}

TEST_CASE("this tnr carries the table of its own libraries", "[cli][support]") {
    auto calls = cli::parse_support(carried());
    CHECK(calls.size() > 500);
    size_t run = 0;
    for (const auto& one : calls) {
        INFO(one.symbol);
        CHECK(one.symbol.starts_with(one.call));
        CHECK(one.since.find('.') != std::string::npos);
        if (one.symbol == "cuLaunchKernel") CHECK(one.how == "custom");
        run += one.runs();
    }
    CHECK(run > 0);
}
