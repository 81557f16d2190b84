// The pixels that a convolution needs, loaded by a tensor map for im2col: padding, a step of two, every offset of a 3 x 3 filter,
// and a column of pixels that goes on from one image to the next; and the way back, which has no offsets.
#include <cuda.h>
#include <cuda/barrier>
#include <utility>

#include "check.hpp"

using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int channels = 8, width = 13, height = 7, images = 3, taken = 4, pixels = 64;

__global__ void load_pixels(const __grid_constant__ CUtensorMap map, int c, int w, int h, int n, unsigned short right,
                            unsigned short down, int* out) {
    __shared__ alignas(128) int room[pixels * taken];
    __shared__ Barrier barrier;
    init(&barrier, 1);
    cuda::device::experimental::fence_proxy_async_shared_cta();
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8}, %9;" ::"r"(
            static_cast<unsigned>(__cvta_generic_to_shared(room))),
        "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n),
        "r"(static_cast<unsigned>(__cvta_generic_to_shared(cuda::device::barrier_native_handle(barrier)))), "h"(right),
        "h"(down), "h"(static_cast<unsigned short>(1))
        : "memory");
    auto token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof room);
    barrier.wait(std::move(token));
    for (int i = 0; i < pixels * taken; ++i) out[i] = room[i];
}

// Element i of the box is i.
__global__ void store_pixels(const __grid_constant__ CUtensorMap map, int c, int w, int h, int n) {
    __shared__ alignas(128) int room[pixels * taken];
    for (int i = 0; i < pixels * taken; ++i) room[i] = i;
    cuda::device::experimental::fence_proxy_async_shared_cta();
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
            &map),
        "r"(c), "r"(w), "r"(h), "r"(n), "r"(static_cast<unsigned>(__cvta_generic_to_shared(room)))
        : "memory");
    cuda::device::experimental::cp_async_bulk_commit_group();
    cuda::device::experimental::cp_async_bulk_wait_group_read<0>();
}

using Encode = decltype(&cuTensorMapEncodeIm2col);

CUresult describe(Encode encode, CUtensorMap& map, int* tensor, int step, int lower, int upper,
                  unsigned count = pixels) {
    cuuint64_t sizes[] = {channels, width, height, images}, strides[3] = {channels * sizeof(int)};
    strides[1] = strides[0] * width;
    strides[2] = strides[1] * height;
    const int from[] = {lower, lower}, to[] = {upper, upper};
    cuuint32_t steps[] = {1, static_cast<cuuint32_t>(step), static_cast<cuuint32_t>(step), 1};
    return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 4, tensor, sizes, strides, from, to, taken, count, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// A 3 x 3 filter with a padding of one: it goes over `across` places of a row.
void convolves(Encode encode, check::Array<int>& tensor, const std::vector<int>& in, int step) {
    const int padding = 1, filter = 3;
    int across = (width + 2 * padding - filter) / step + 1, along = (height + 2 * padding - filter) / step + 1;
    CUtensorMap map;
    EXPECT(describe(encode, map, tensor.data, step, -padding, padding - (filter - 1)) == CUDA_SUCCESS);
    check::Array<int> out(std::vector<int>(pixels * taken, -1));
    const int places = across * along, first = 2 * places - 20, channel = 4;  // the column begins in the second image
    for (int down = 0; down < filter; ++down)
        for (int right = 0; right < filter; ++right) {
            load_pixels<<<1, 1>>>(map, channel, first % across * step - padding,
                                  first / across % along * step - padding, first / places,
                                  static_cast<unsigned short>(right), static_cast<unsigned short>(down), out.data);
            CUDA_LAUNCHED();
            auto got = out.host();
            for (int i = 0; i < pixels * taken; ++i) {
                int place = first + i / taken, image = place / places;
                int x = place % across * step - padding + right;
                int y = place / across % along * step - padding + down;
                bool inside = x >= 0 && x < width && y >= 0 && y < height && image < images;
                int at = ((image * height + y) * width + x) * channels + channel + i % taken;
                EXPECT_NEAR(got[i], inside ? in[at] : 0, 0, i);
            }
        }
}

// The box of a filter of one pixel: the tensor's own pixels, from the second image's end on.
void comes_back(Encode encode) {
    const int untouched = -7, places = width * height, first = 2 * places - 20, channel = 4;
    check::Array<int> tensor(std::vector<int>(channels * places * images, untouched));
    CUtensorMap map;
    EXPECT(describe(encode, map, tensor.data, 1, 0, 0) == CUDA_SUCCESS);
    store_pixels<<<1, 1>>>(map, channel, first % width, first / width % height, first / places);
    CUDA_LAUNCHED();
    auto got = tensor.host();
    for (int i = 0; i < channels * places * images; ++i) {
        int pixel = i / channels - first, within = i % channels - channel;
        bool stored = pixel >= 0 && pixel < pixels && within >= 0 && within < taken;
        EXPECT_NEAR(got[i], stored ? pixel * taken + within : untouched, 0, i);
    }
}

int main() {
    std::vector<int> in(channels * width * height * images);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i) + 1;
    check::Array<int> tensor(in);
    auto encode = check::driver_function<Encode>("cuTensorMapEncodeIm2col");
    if (!encode) return check::finish();
    convolves(encode, tensor, in, 1);
    convolves(encode, tensor, in, 2);
    comes_back(encode);
    CUtensorMap bad;
    EXPECT(describe(encode, bad, tensor.data, 1, -129, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, tensor.data, 1, 0, -height) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, tensor.data, 1, 0, 0, 1025) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, tensor.data, 9, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    return check::finish();
}
