// Linking PTX of several units, by cuLink and as nvcc's -rdc=true leaves it to the driver.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "gpu.hpp"

using namespace driver_api;

namespace {

const std::string header = ".version 7.0\n.target sm_75\n.address_size 64\n";
const std::string user = header + R"(
.extern .func (.param .b32 result) triple(.param .b32 value);
.extern .global .align 4 .u32 offset;
.visible .entry apply(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), triple, (a); ld.param.b32 %r2, [b]; }
    ld.global.u32 %r3, [offset];
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd1], %r2;
    ret;
}
)";
const std::string maker = header + R"(
.visible .global .align 4 .u32 offset = 1000;
.visible .func (.param .b32 result) triple(.param .b32 value)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [value];
    mul.lo.u32 %r2, %r1, 3;
    st.param.b32 [result], %r2;
    ret;
}
)";

class Link {
public:
    Link() {
        CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_OPTIMIZATION_LEVEL};
        std::memcpy(names_, names, sizeof names);
        values_[0] = errors;
        values_[1] = reinterpret_cast<void*>(sizeof errors);
        values_[2] = reinterpret_cast<void*>(size_t{3});
        CU_OK(cu.cuLinkCreate(3, names_, values_, &state));
    }
    ~Link() { cu.cuLinkDestroy(state); }
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    CUresult add(const std::string& text, const char* name) {
        auto* data = const_cast<char*>(text.c_str());
        return cu.cuLinkAddData(state, CU_JIT_INPUT_PTX, data, text.size() + 1, name, 0, nullptr, nullptr);
    }
    CUresult complete(std::vector<char>& image) {
        void* data = nullptr;
        size_t size = 0;
        CUresult result = cu.cuLinkComplete(state, &data, &size);
        if (result == CUDA_SUCCESS) image.assign(static_cast<char*>(data), static_cast<char*>(data) + size);
        return result;
    }

    CUlinkState state = nullptr;
    char errors[4000] = {};

private:
    CUjit_option names_[3];
    void* values_[3];
};

void check_applies(const void* image) {
    Module module(image);
    Memory out(sizeof(int));
    CU_OK(launch(module.function("apply"), nullptr, out.address, 14));
    CHECK(out.first<int>() == 3 * 14 + 1000);
    CUdeviceptr offset = 0;
    CU_OK(cu.cuModuleGetGlobal(&offset, nullptr, module.handle, "offset"));
    int other = 5;
    CU_OK(cu.cuMemcpyHtoD(offset, &other, sizeof(other)));
    CU_OK(launch(module.function("apply"), nullptr, out.address, 14));
    CHECK(out.first<int>() == 3 * 14 + 5);
}

}  // namespace

TEST_CASE("units that use each other's functions and variables are linked", "[link]") {
    Gpu gpu;
    bool user_first = GENERATE(true, false);
    // More than travels at once, where the text is what travels back.
    std::string padding;
    for (int i = 0; i < 30'000; ++i) padding += "// a line that says nothing, to make the unit longer\n";
    std::vector<char> image;
    {
        Link link;
        CU_OK(link.add((user_first ? user : maker) + padding, "one.ptx"));
        CU_OK(link.add(user_first ? maker : user, "two.ptx"));
        CU_OK(link.complete(image));
        CU_CHECK(link.add(maker, "late.ptx"), CUDA_ERROR_INVALID_VALUE);
    }
    // What came out stands for itself once it is copied, and is an ELF file as a cubin is.
    CHECK(std::string(image.data(), 4) ==
          "\x7f"
          "ELF");
    check_applies(image.data());
}

TEST_CASE("the program that is linked may come from files", "[link]") {
    Gpu gpu;
    char path[] = "/tmp/driver_api_link.XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    REQUIRE(write(file, maker.data(), maker.size()) == ssize_t(maker.size()));
    close(file);
    Link link;
    CUresult added = cu.cuLinkAddFile(link.state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr);
    unlink(path);
    CU_OK(added);
    CU_CHECK(cu.cuLinkAddFile(link.state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr), CUDA_ERROR_FILE_NOT_FOUND);
    CU_OK(link.add(user, "user.ptx"));
    std::vector<char> image;
    CU_OK(link.complete(image));
    check_applies(image.data());
}

TEST_CASE("what was linked can be linked again, and fat binaries, too", "[link]") {
    Gpu gpu;
    std::vector<char> half, image;
    Link first;
    auto fat = fatbin_image();
    CU_OK(cu.cuLinkAddData(first.state, CU_JIT_INPUT_FATBINARY, const_cast<unsigned char*>(fat.data), fat.size,
                           "kernels", 0, nullptr, nullptr));
    CU_OK(first.complete(half));
    Module module(half.data());
    Memory out(sizeof(int));
    CU_OK(launch(module.function("store"), nullptr, out.address, 77));
    CHECK(out.first<int>() == 77);
}

TEST_CASE("a host's objects and libraries are linked", "[link]") {
    Gpu gpu;
    Link link;
    const auto add = [&](CUjitInputType type, Image image, size_t bytes) {
        return cu.cuLinkAddData(link.state, type, const_cast<unsigned char*>(image.data), bytes, "host", 0, nullptr,
                                nullptr);
    };
    const auto object = object_image(), library = library_image();
    SECTION("what they bring") {
        CU_OK(add(CU_JIT_INPUT_LIBRARY, library, library.size));
        CU_OK(add(CU_JIT_INPUT_OBJECT, object, object.size));
        std::vector<char> image;
        CU_OK(link.complete(image));
        Module module(image.data());
        Memory out(sizeof(int));
        CU_OK(launch(module.function("call_other_unit"), nullptr, out.address, 20));
        CHECK(out.first<int>() == 20 * 20 + 7);
    }
    SECTION("what is cut off, or another thing, is refused") {
        CHECK(add(CU_JIT_INPUT_OBJECT, library, library.size) != CUDA_SUCCESS);
        CHECK(add(CU_JIT_INPUT_LIBRARY, object, object.size) != CUDA_SUCCESS);
        CHECK(add(CU_JIT_INPUT_LIBRARY, library, library.size / 2) != CUDA_SUCCESS);
        CHECK(std::strlen(link.errors) > 0);
    }
}

TEST_CASE("names that cannot be resolved, or are defined twice, are told", "[link]") {
    Gpu gpu;
    std::vector<char> image;
    SECTION("nowhere") {
        Link link;
        CU_OK(link.add(user, "user.ptx"));
        CHECK(link.complete(image) != CUDA_SUCCESS);
        CHECK(std::string(link.errors).find("triple") != std::string::npos);
    }
    SECTION("twice") {
        Link link;
        CU_OK(link.add(maker, "one.ptx"));
        // NVIDIA's driver links at once, the emulated one when all is there.
        CUresult linked = link.add(maker, "two.ptx");
        if (linked == CUDA_SUCCESS)
            linked = link.complete(image);
        else
            CU_CHECK(linked, CUDA_ERROR_INVALID_SOURCE);
        CHECK(linked != CUDA_SUCCESS);
        CHECK(std::string(link.errors).find("triple") != std::string::npos);
    }
    SECTION("no PTX at all") {
        Link link;
        CU_CHECK(link.add(header + "this is none\n", "odd.ptx"), CUDA_ERROR_INVALID_PTX);
        CHECK(std::strlen(link.errors) > 0);
    }
}

TEST_CASE("links check their arguments", "[link]") {
    Gpu gpu;
    CUlinkState gone = nullptr;
    CU_CHECK(cu.cuLinkCreate(0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuLinkCreate(0, nullptr, nullptr, &gone));
    CU_CHECK(cu.cuLinkAddData(gone, CU_JIT_INPUT_PTX, nullptr, 1, "", 0, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuLinkComplete(gone, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuLinkDestroy(gone));
}

TEST_CASE("an executable's inputs are linked when what nvcc linked is for another GPU", "[link]") {
    Gpu gpu;
    if (gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 7)
        return;  // it fits, but has no kernels we know
    auto units = separate_images();
    struct {
        unsigned magic = 0x466243b1, version = 2;
        const void* linked;
        const void* const* inputs;
    } wrapper;
    const void* inputs[] = {units[0].data, units[1].data, nullptr};
    wrapper.linked = fatbin_sm75_image().data;
    wrapper.inputs = inputs;
    CUlibrary library = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, &wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel kernel = nullptr;
    CU_OK(cu.cuLibraryGetKernel(&kernel, library, "call_other_unit"));
    Memory out(sizeof(int));
    CU_OK(launch(reinterpret_cast<CUfunction>(kernel), nullptr, out.address, 20));
    CHECK(out.first<int>() == 20 * 20 + 7);
    CU_OK(cu.cuLibraryUnload(library));
}
