#include "gpu_client/protocol/cubin.hpp"

#include "tests/support/catch.hpp"

#include "images.hpp"

using namespace tnr::cubin;

namespace {

const Kernel* named(const std::vector<Kernel>& kernels, const std::string& name) {
    for (const Kernel& kernel : kernels)
        if (kernel.name == name) return &kernel;
    return nullptr;
}

}  // namespace

TEST_CASE("a cubin says where each kernel's parameters go", "[cubin]") {
    for (const char* name : {"sm_75.cubin", "sm_90.cubin", "sm_120.cubin"}) {
        INFO(name);
        auto bytes = image(name);
        auto found = kernels(bytes);
        REQUIRE(found);
        const Kernel* holes = named(*found, "holes");
        REQUIRE(holes);
        std::vector<std::pair<uint32_t, uint32_t>> layout;
        for (const Parameter& parameter : holes->parameters) layout.emplace_back(parameter.offset, parameter.size);
        CHECK(layout == std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}, {8, 8}, {16, 16}, {32, 2}, {40, 8}});
        CHECK(holes->parameter_bytes == 48);
        const Kernel* none = named(*found, "no_parameters");
        REQUIRE(none);
        CHECK(none->parameters.empty());
        CHECK(none->parameter_bytes == 0);
        const Kernel* large = named(*found, "large");
        REQUIRE(large);
        REQUIRE(large->parameters.size() == 2);
        CHECK(large->parameters[1].offset == 8);
        CHECK(large->parameters[1].size == 8192);
    }
}

TEST_CASE("a cubin says what it was built for", "[cubin]") {
    CHECK(*architecture(image("sm_75.cubin")) == 75);
    CHECK(*architecture(image("sm_90.cubin")) == 90);
    CHECK(*architecture(image("sm_120.cubin")) == 120);
    CHECK(is_cubin(image("sm_90.cubin")));
    CHECK_FALSE(is_cubin(image("default.fatbin")));
}

TEST_CASE("a cubin cut off anywhere is refused or shorter, never read beyond", "[cubin]") {
    auto whole = image("sm_90.cubin");
    for (size_t size = 0; size < whole.size(); size += size < 256 ? 1 : 61) {
        std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
        auto found = kernels(cut);
        CHECK((!found || found->size() <= 3));
    }
}
