// `tnr run` and what it ends with.
#include "cli/commands/run.hpp"

#include "cli/money/gpu_time.hpp"
#include "gpu_client/protocol/control.hpp"
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

TEST_CASE("a run has a name that pools take, whatever this computer is called", "[cli][run]") {
    CHECK(cli::name_of_run("laptop", 17) == "run-laptop-17");
    const std::string label(63, 'h');  // as long as a host's name gets
    CHECK(cli::name_of_run(label, 4'194'304).size() == control::name_bytes_max);
    CHECK(cli::name_of_run(label, 4'194'304).ends_with("h-4194304"));
    CHECK(cli::name_of_run("my laptop\n\xc3\xa4", 1) == "run-my-laptop----1");
    cli::GpuUse use;
    use.machine = cli::name_of_run(label, 17);
    CHECK(cli::who_used(use).starts_with("tnr run on hhh"));
}
