// What arrays are charged to a session, and what becomes of their parts, when a hostile client says otherwise. Runs as
// grants_test.cpp does.
#include "tests/support/catch.hpp"

#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/array_records.hpp"
#include "raw_records.hpp"

using namespace tnr;
using namespace tnr::cuda;
using namespace tnr::test;

TEST_CASE("an array is charged what its texels take, whatever the client says", "[arrays]") {
    struct Kind {
        CUarray_format format;
        uint32_t channels;
        uint64_t texel;  // bytes, in all planes
        bool mipmapped;
        uint64_t first;
    };
    const auto [format, channels, texel, mipmapped, first] =
        GENERATE(Kind{CU_AD_FORMAT_FLOAT, 1, 4, false, 1}, Kind{CU_AD_FORMAT_FLOAT, 1, 4, true, 1000},
                 Kind{CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 3, 6, false, 2000},
                 Kind{CU_AD_FORMAT_Y416, 4, 8, false, 3000}, Kind{CU_AD_FORMAT_Y416, 4, 8, true, 4000});
    CAPTURE(format, mipmapped);
    Held held;
    const uint64_t side = 2048;  // 16 MiB of floats
    wire::ArrayShape shape{side, side, 0, format, channels, 0, 0};
    uint64_t made = 0, number = first;
    CUresult result = CUDA_SUCCESS;
    for (; made <= gpu_bytes; made += side * side * texel, ++number) {
        result =
            mipmapped
                ? ask_in(held.context, wire::op_cuMipmappedArrayCreate, number, uint32_t{0}, shape.width, shape.height,
                         shape.depth, shape.format, shape.channels, shape.flags, shape.charged_bytes, uint32_t{1})
                : ask_in(held.context, wire::op_cuArray3DCreate_v2, number, uint32_t{0}, shape.width, shape.height,
                         shape.depth, shape.format, shape.channels, shape.flags, shape.charged_bytes);
        if (result != CUDA_SUCCESS) break;
    }
    CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(made <= gpu_bytes - reserve_bytes);
    CHECK(made >= gpu_bytes / 2);
    const uint16_t destroy = mipmapped ? wire::op_cuMipmappedArrayDestroy : wire::op_cuArrayDestroy;
    while (number-- > first) CHECK(ask_in(held.context, destroy, number) == CUDA_SUCCESS);
}

TEST_CASE("parts of arrays cannot be destroyed by themselves", "[arrays]") {
    Held held;
    const auto create = [&](uint16_t op, uint64_t number, uint32_t format, uint32_t channels, const auto&... more) {
        return ask_in(held.context, op, number, uint32_t{0}, uint64_t{64}, uint64_t{64}, uint64_t{0}, format, channels,
                      uint32_t{0}, uint64_t{0}, more...);
    };
    const auto get = [&](uint16_t op, uint64_t part, uint64_t of, uint32_t index) {
        return ask_in(held.context, op, part, of, index);
    };
    REQUIRE(create(wire::op_cuArray3DCreate_v2, 5000, CU_AD_FORMAT_NV12, 3) == CUDA_SUCCESS);
    REQUIRE(create(wire::op_cuMipmappedArrayCreate, 5001, CU_AD_FORMAT_FLOAT, 1, uint32_t{3}) == CUDA_SUCCESS);
    CHECK(get(wire::op_cuArrayGetPlane, 5002, 5000, 1) == CUDA_SUCCESS);
    CHECK(get(wire::op_cuArrayGetPlane, 5003, 5000, 2) == CUDA_ERROR_INVALID_VALUE);
    CHECK(get(wire::op_cuArrayGetPlane, 5003, 5002, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(get(wire::op_cuArrayGetPlane, 5002, 5000, 0) == CUDA_ERROR_INVALID_VALUE);  // the number is taken
    CHECK(get(wire::op_cuMipmappedArrayGetLevel, 5004, 5001, 1) == CUDA_SUCCESS);
    for (uint64_t part : {5002, 5004})
        CHECK(ask_in(held.context, wire::op_cuArrayDestroy, part) == CUDA_ERROR_INVALID_HANDLE);
    for (uint64_t part : {5002, 5004})  // still there
        CHECK(ask_in(held.context, wire::op_cuSurfObjectCreate, part) == CUDA_SUCCESS);
    CHECK(ask_in(held.context, wire::op_cuArrayDestroy, uint64_t{5000}) == CUDA_SUCCESS);
    CHECK(ask_in(held.context, wire::op_cuSurfObjectCreate, uint64_t{5002}) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(ask_in(held.context, wire::op_cuMipmappedArrayDestroy, uint64_t{5001}) == CUDA_SUCCESS);
}
