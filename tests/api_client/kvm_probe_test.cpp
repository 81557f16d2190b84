// When KVM is used, and when it is not.
#include "api_client/providers/local/kvm_probe.hpp"

#include <fcntl.h>

#include "tests/support/catch.hpp"

#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

namespace {

bool have_kvm() {
    return static_cast<bool>(UniqueFd(::open("/dev/kvm", O_RDWR | O_CLOEXEC)));
}

std::string boot_id() {
    const std::string id = test::read_text("/proc/sys/kernel/random/boot_id");
    return id.substr(0, id.find('\n'));
}

}  // namespace

TEST_CASE("the probe's answer holds until the host boots again", "[kvm]") {
    const TemporaryFolder folder;
    test::write_text(folder / "kernel", "not a kernel, and so never proof that a guest runs");

    SECTION("an answer of this boot is believed") {
        test::write_text(folder / "probe", boot_id() + " works\n");
        CHECK(kvm_works(folder / "kernel", folder / "probe") == have_kvm());
    }
    SECTION("one of an earlier boot is not") {
        test::write_text(folder / "probe", "00000000-0000-0000-0000-000000000000 works\n");
        CHECK(!kvm_works(folder / "kernel", folder / "probe"));
        if (have_kvm()) CHECK(test::read_text(folder / "probe") == boot_id() + " hangs\n");
    }
    SECTION("without one a guest has to run") {
        CHECK(!kvm_works(folder / "kernel", folder / "probe"));
    }
}
