// Arrays, textures and surfaces as remoting has them: what they cost in round trips and records, and what becomes of them with
// their context. Seen from inside the client library, beside a server.
#include <numeric>
#include <vector>

#include "tests/gpu_client/cuda/costs.hpp"

using namespace tnr::cuda;

namespace {

class Program {
public:
    Program() {
        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        OK(cuCtxSynchronize());
    }
    ~Program() { cuDevicePrimaryCtxRelease_v2(0); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    CUcontext context = nullptr;
};

constexpr CUDA_ARRAY3D_DESCRIPTOR square{64, 64, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};

CUDA_RESOURCE_DESC resource_of(CUarray array) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return resource;
}

CUDA_MEMCPY2D box(const void* host, CUarray array) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = host, copy.srcPitch = 256;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = array;
    copy.WidthInBytes = 256, copy.Height = 64;
    return copy;
}

}  // namespace

TEST_CASE("only what the driver must answer is waited for", "[arrays]") {
    Program program;
    CUarray array = nullptr, level = nullptr;
    CUmipmappedArray mipmap = nullptr;
    CUtexObject texture = 0;
    CUDA_ARRAY3D_DESCRIPTOR shown{};
    OK(cuArray3DCreate_v2(&array, &square));
    CHECK(cost_of([&] { OK(cuArray3DCreate_v2(&array, &square)); }).round_trips == 1);
    CHECK(cost_of([&] { OK(cuArray3DGetDescriptor_v2(&shown, array)); }).records == 0);
    CHECK(cost_of([&] { OK(cuMipmappedArrayCreate(&mipmap, &square, 7)); }).round_trips == 1);
    CHECK(cost_of([&] { OK(cuMipmappedArrayGetLevel(&level, mipmap, 3)); }).records == 0);
    std::vector<float> values(64 * 64, 1);
    auto copy = box(values.data(), array);
    auto copying = cost_of([&] { OK(cuMemcpy2D_v2(&copy)); });
    CHECK(copying.round_trips == 0);
    CHECK(copying.records == 1);
    auto resource = resource_of(array);
    CUDA_TEXTURE_DESC how{};
    CHECK(cost_of([&] { OK(cuTexObjectCreate(&texture, &resource, &how, nullptr)); }).round_trips == 1);
    CUDA_TEXTURE_DESC shown_how{};
    CHECK(cost_of([&] { OK(cuTexObjectGetTextureDesc(&shown_how, texture)); }).records == 0);
    auto destroying = cost_of([&] {
        OK(cuTexObjectDestroy(texture));
        OK(cuMipmappedArrayDestroy(mipmap));
        OK(cuArrayDestroy(array));
    });
    CHECK(destroying.round_trips == 0);
    OK(cuCtxSynchronize());
}

TEST_CASE("planes are known once their array is made", "[arrays]") {
    Program program;
    CUarray array = nullptr, plane = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR picture{64, 64, 0, CU_AD_FORMAT_NV12, 3, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE}, shown{};
    CHECK(cost_of([&] { OK(cuArray3DCreate_v2(&array, &picture)); }).round_trips == 3);
    auto asking = cost_of([&] {
        for (unsigned index = 0; index < 2; ++index) OK(cuArrayGetPlane(&plane, array, index));
        OK(cuArray3DGetDescriptor_v2(&shown, plane));
        CHECK(cuArrayGetPlane(&plane, array, 2) == CUDA_ERROR_INVALID_VALUE);
    });
    CHECK(asking.records == 0);
    CHECK(shown.Width == 32);
    OK(cuArrayDestroy(array));
    OK(cuCtxSynchronize());
}

TEST_CASE("arrays are charged to the session and go with their context", "[arrays]") {
    Program program;
    size_t before = 0, between = 0, after = 0, total = 0;
    CUcontext other = nullptr;
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuCtxCreate_v2(&other, 0, 0));
    CUDA_ARRAY3D_DESCRIPTOR large{4096, 4096, 0, CU_AD_FORMAT_FLOAT, 4, 0};
    CUarray array = nullptr;
    OK(cuArray3DCreate_v2(&array, &large));
    OK(cuMemGetInfo_v2(&between, &total));
    CHECK(between + (size_t{256} << 20) <= before);
    OK(cuCtxDestroy_v2(other));
    CUDA_ARRAY3D_DESCRIPTOR shown{};
    CHECK(cuArray3DGetDescriptor_v2(&shown, array) == CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxSetCurrent(program.context));
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after >= between + (size_t{256} << 20));
    std::vector<CUarray> many;  // all of the GPU, again and again: what was charged has come back
    for (int round = 0; round < 3; ++round) {
        CUresult result = CUDA_SUCCESS;
        while ((result = cuArray3DCreate_v2(&array, &large)) == CUDA_SUCCESS) many.push_back(array);
        CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(many.size() >= 4);
        for (auto one : many) OK(cuArrayDestroy(one));
        many.clear();
    }
}

TEST_CASE("a failed creation leaves nothing behind", "[arrays]") {
    Program program;
    size_t before = 0, after = 0, total = 0;
    OK(cuMemGetInfo_v2(&before, &total));
    CUarray array = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR no_cube{64, 64, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP};
    for (int i = 0; i < 100; ++i) CHECK(cuArray3DCreate_v2(&array, &no_cube) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before);
    CHECK(array == nullptr);
}
