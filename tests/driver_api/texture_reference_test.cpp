// Texture and surface references, which no compiler of today makes any more but old programs' code has.
#include <dlfcn.h>

#include <numeric>

#include "arrays.hpp"

using namespace driver_api;

namespace {

const char* const code = R"(.version 7.0
.target sm_70
.address_size 64
.global .texref image;
.global .surfref plane;
.visible .entry use(.param .u64 out, .param .f32 at) {
    .reg .b64 %out;
    .reg .f32 %at;
    .reg .b32 %a, %b, %c, %d, %x, %i;
    ld.param.u64 %out, [out];
    ld.param.f32 %at, [at];
    tex.1d.v4.f32.f32 {%a, %b, %c, %d}, [image, {%at}];
    st.global.b32 [%out], %a;
    ret;
}
.visible .entry use_plane(.param .u64 out, .param .f32 x, .param .f32 y) {
    .reg .b64 %out;
    .reg .f32 %x, %y;
    .reg .b32 %a, %b, %c, %d;
    ld.param.u64 %out, [out];
    ld.param.f32 %x, [x];
    ld.param.f32 %y, [y];
    tex.2d.v4.f32.f32 {%a, %b, %c, %d}, [image, {%x, %y}];
    st.global.b32 [%out], %a;
    ret;
}
.visible .entry write(.param .f32 value) {
    .reg .b32 %value;
    ld.param.b32 %value, [value];
    sust.b.1d.b32.trap [plane, {4}], {%value};
    ret;
}
)";

}  // namespace

TEST_CASE("a kernel reads what its module's texture reference is bound to", "[texture][reference]") {
    Gpu gpu;
    Module module(code);
    std::vector<float> values(16);
    std::iota(values.begin(), values.end(), 1.0f);
    Array array(described(16, 0, 0, CUDA_ARRAY3D_SURFACE_LDST));
    CU_OK(cu.cuMemcpyHtoA(array, 0, values.data(), 64));
    CUtexref reference = nullptr, again = nullptr;
    CU_OK(cu.cuModuleGetTexRef(&reference, module.handle, "image"));
    CU_OK(cu.cuModuleGetTexRef(&again, module.handle, "image"));
    CHECK(reference == again);
    CU_CHECK(cu.cuModuleGetTexRef(&again, module.handle, "no such"), CUDA_ERROR_NOT_FOUND);
    CU_OK(cu.cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT));
    CU_OK(cu.cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR));
    CU_OK(cu.cuTexRefSetAddressMode(reference, 0, CU_TR_ADDRESS_MODE_CLAMP));
    Memory result(4);
    auto sample = [&](float at) {
        CU_OK(launch(module.function("use"), nullptr, result.address, at));
        return result.first<float>();
    };
    CHECK(sample(2) == 2.5f);
    CU_OK(cu.cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_POINT));
    CHECK(sample(2) == 3);
    CU_OK(cu.cuTexRefSetFlags(reference, CU_TRSF_NORMALIZED_COORDINATES));
    CHECK(sample(0.99f) == 16);

    CUsurfref surface = nullptr;
    CU_OK(cu.cuModuleGetSurfRef(&surface, module.handle, "plane"));
    CU_OK(cu.cuSurfRefSetArray(surface, array, 0));
    CU_OK(launch(module.function("write"), nullptr, 77.0f));
    CHECK(sample(0.1f) == 77);
    CUarray bound = nullptr;
    CU_OK(cu.cuTexRefGetArray(&bound, reference));
    CHECK(bound == array.handle);
    CU_OK(cu.cuSurfRefGetArray(&bound, surface));
    CHECK(bound == array.handle);
}

TEST_CASE("a texture reference is bound to rows of linear memory", "[texture][reference]") {
    using SetAddress = CUresult (*)(CUtexref, const CUDA_ARRAY_DESCRIPTOR*, CUdeviceptr, size_t);
    Gpu gpu;
    Module module(code);
    const size_t row = 128, pitch = 512;
    std::vector<float> values(4 * row);
    std::iota(values.begin(), values.end(), 0.0f);
    Memory memory(values), result(4);
    CUtexref reference = nullptr;
    CU_OK(cu.cuModuleGetTexRef(&reference, module.handle, "image"));
    const CUDA_ARRAY_DESCRIPTOR described{100, 4, CU_AD_FORMAT_FLOAT, 1};
    const auto bind = GENERATE("cuTexRefSetAddress2D_v2", "cuTexRefSetAddress2D_v3");  // of CUDA 3.2, and today's
    auto* set_address = reinterpret_cast<SetAddress>(dlsym(cu.library, bind));
    REQUIRE(set_address);
    CU_CHECK(set_address(reference, nullptr, memory.address, pitch), CUDA_ERROR_INVALID_VALUE);
    CU_OK(set_address(reference, &described, memory.address, pitch));
    CU_OK(launch(module.function("use_plane"), nullptr, result.address, 7.5f, 2.5f));
    CHECK(result.first<float>() == 2 * row + 7);
}

TEST_CASE("a texture reference keeps its settings", "[texture][reference]") {
    Gpu gpu;
    Module module(code);
    CUtexref reference = nullptr;
    CU_OK(cu.cuModuleGetTexRef(&reference, module.handle, "image"));
    CU_OK(cu.cuTexRefSetFormat(reference, CU_AD_FORMAT_SIGNED_INT16, 2));
    CUarray_format format{};
    int channels = 0;
    CU_OK(cu.cuTexRefGetFormat(&format, &channels, reference));
    CHECK(format == CU_AD_FORMAT_SIGNED_INT16);
    CHECK(channels == 2);
    CU_OK(cu.cuTexRefSetAddressMode(reference, 1, CU_TR_ADDRESS_MODE_MIRROR));
    CUaddress_mode mode{};
    CU_OK(cu.cuTexRefGetAddressMode(&mode, reference, 1));
    CHECK(mode == CU_TR_ADDRESS_MODE_MIRROR);
    CU_CHECK(cu.cuTexRefSetAddressMode(reference, 3, CU_TR_ADDRESS_MODE_MIRROR), CUDA_ERROR_INVALID_VALUE);
    float color[4] = {1, 2, 3, 4}, shown[4] = {};
    CU_OK(cu.cuTexRefSetBorderColor(reference, color));
    CU_OK(cu.cuTexRefGetBorderColor(shown, reference));
    CHECK(shown[2] == 3);
    CUarray bound = nullptr;
    CU_CHECK(cu.cuTexRefGetArray(&bound, reference), CUDA_ERROR_INVALID_VALUE);
    std::vector<float> values{5, 6, 7, 8};
    Memory memory(values), result(4);
    CU_OK(cu.cuTexRefSetFormat(reference, CU_AD_FORMAT_FLOAT, 1));
    size_t offset = 1;
    CU_OK(cu.cuTexRefSetAddress(&offset, reference, memory.address, 16));
    CHECK(offset == 0);
    CUdeviceptr address = 0;
    CU_OK(cu.cuTexRefGetAddress(&address, reference));
    CHECK(address == memory.address);
}
