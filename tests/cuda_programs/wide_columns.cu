// Pixels of one row of many images, loaded by a tensor map for im2col along the width: what a filter of one row and three columns
// needs, with padding. Swizzling is a must in these maps, so what comes is put in order here.
#include <cuda.h>
#include <cuda/barrier>
#include <utility>

#include "check.hpp"

using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int channels = 32, width = 9, height = 4, images = 20, taken = 16, pixels = 64, row = 2;

__global__ void load_pixels(const __grid_constant__ CUtensorMap map, int c, int w, int n, unsigned short offset,
                            int* out) {
    __shared__ alignas(1024) int room[pixels * taken];
    __shared__ Barrier barrier;
    init(&barrier, 1);
    cuda::device::experimental::fence_proxy_async_shared_cta();
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(room))),
        "l"(&map), "r"(c), "r"(w), "r"(row), "r"(n),
        "r"(static_cast<unsigned>(__cvta_generic_to_shared(cuda::device::barrier_native_handle(barrier)))),
        "h"(static_cast<unsigned short>(0)), "h"(offset)
        : "memory");
    auto token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof room);
    barrier.wait(std::move(token));
    for (int i = 0; i < pixels * taken; ++i) {
        int line = i * 4 >> 7;
        out[i] = room[i ^ (line & 3) * 4];
    }
}

using Encode = decltype(&cuTensorMapEncodeIm2colWide);

CUresult describe(Encode encode, CUtensorMap& map, int* tensor, CUtensorMapIm2ColWideMode mode,
                  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_64B, int lower = -1, unsigned count = pixels) {
    cuuint64_t sizes[] = {channels, width, height, images}, strides[3] = {channels * sizeof(int)};
    strides[1] = strides[0] * width;
    strides[2] = strides[1] * height;
    cuuint32_t steps[] = {1, 1, 1, 1};
    return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 4, tensor, sizes, strides, lower, -1, taken, count, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, mode, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

void convolves(Encode encode, check::Array<int>& tensor, const std::vector<int>& in) {
    CUtensorMap map;
    EXPECT(describe(encode, map, tensor.data, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W) == CUDA_SUCCESS);
    check::Array<int> out(std::vector<int>(pixels * taken, -1));
    const int first = 13 * width + 3, channel = 8;  // the last pixels are beyond the last image
    for (int tap = 0; tap < 3; ++tap) {
        load_pixels<<<1, 1>>>(map, channel, first % width - 1, first / width, static_cast<unsigned short>(tap),
                              out.data);
        CUDA_LAUNCHED();
        auto got = out.host();
        for (int i = 0; i < pixels * taken; ++i) {
            int place = first + i / taken, image = place / width, x = place % width - 1 + tap;
            bool inside = x >= 0 && x < width && image < images;
            int at = ((image * height + row) * width + x) * channels + channel + i % taken;
            EXPECT_NEAR(got[i], inside ? in[at] : 0, 0, i);
        }
    }
}

int main() {
    std::vector<int> in(channels * width * height * images);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i) + 1;
    check::Array<int> tensor(in);
    auto encode = check::driver_function<Encode>("cuTensorMapEncodeIm2colWide", 12080);
    if (!encode) return check::finish();
    convolves(encode, tensor, in);
    CUtensorMap bad;
    auto mode = CU_TENSOR_MAP_IM2COL_WIDE_MODE_W;
    // For this one a pixel count has no meaning.
    EXPECT(describe(encode, bad, tensor.data, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128, CU_TENSOR_MAP_SWIZZLE_64B, -1,
                    1025) == CUDA_SUCCESS);
    EXPECT(describe(encode, bad, tensor.data, mode, CU_TENSOR_MAP_SWIZZLE_NONE) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, tensor.data, mode, CU_TENSOR_MAP_SWIZZLE_64B, -32769) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, tensor.data, mode, CU_TENSOR_MAP_SWIZZLE_64B, width) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, tensor.data, mode, CU_TENSOR_MAP_SWIZZLE_64B, -1, 1025) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, tensor.data, static_cast<CUtensorMapIm2ColWideMode>(2)) == CUDA_ERROR_INVALID_VALUE);
    return check::finish();
}
