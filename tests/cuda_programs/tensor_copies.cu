// Boxes of a matrix between global and shared memory by tensor maps: edges that stick out, a swizzle, and the way back; and
// values of four and six bits.
#include <cuda.h>
#include <cuda/barrier>
#include <utility>

#include "check.hpp"

using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

constexpr int box = 32;  // elements on each side; a row of them is 128 bytes

// Loads the box at (x, y), adds one to each element, and stores it at the same place of another matrix. Where the swizzle says
// that element is in shared memory, it must be.
__global__ void through_shared(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out, int x,
                               int y, bool swizzled) {
    __shared__ alignas(1024) int room[box][box];
    __shared__ alignas(1024) int plain[box][box];
    __shared__ Barrier barrier;
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(room, &in, x, y, barrier);
        token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof room);
    } else {
        token = barrier.arrive();
    }
    barrier.wait(std::move(token));
    for (int row = 0; row < box; ++row) {
        int column = static_cast<int>(threadIdx.x);
        int chunk = swizzled ? (column / 4) ^ (row % 8) : column / 4;
        plain[row][column] = room[row][chunk * 4 + column % 4] + 1;
    }
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_shared_to_global(&out, x, y, plain);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
}

constexpr int packed_columns = 128, packed_rows = 4, packet = 16;  // of a box; values in a packet

// Loads the box at (128, 6) and writes down what came.
__global__ void load_packed(const __grid_constant__ CUtensorMap in, unsigned char* out, int counted) {
    __shared__ alignas(1024) unsigned char room[packed_columns * packed_rows];
    __shared__ Barrier barrier;
    init(&barrier, 1);
    cde::fence_proxy_async_shared_cta();
    cde::cp_async_bulk_tensor_2d_global_to_shared(room, &in, 128, 6, barrier);
    barrier.wait(cuda::device::barrier_arrive_tx(barrier, 1, counted));
    for (int i = 0; i < packed_columns * packed_rows; ++i) out[i] = room[i];
}

using Encode = decltype(&cuTensorMapEncodeTiled);

CUresult describe(Encode encode, CUtensorMap& map, int* matrix, int width, int height, CUtensorMapSwizzle swizzle) {
    cuuint64_t sizes[] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(height)};
    cuuint64_t strides[] = {width * sizeof(int)};
    cuuint32_t boxes[] = {box, box}, steps[] = {1, 1};
    return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, matrix, sizes, strides, boxes, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// A packet is 16 values in `bytes`, which lie `apart` in shared memory.
void values_of_few_bits(Encode encode, CUtensorMapDataType type, int bytes, int apart) {
    const int columns = 2 * packed_columns, rows = 8, packets = packed_columns / packet,
              row_bytes = columns / packet * bytes;
    std::vector<unsigned char> in(row_bytes * rows);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7 + i / 251);
    check::Array<unsigned char> device_in(in), device_out(std::vector<unsigned char>(packed_columns * packed_rows));
    CUtensorMap map;
    auto encoded = [&](cuuint32_t width, cuuint64_t size) {
        cuuint64_t sizes[] = {size, rows}, strides[] = {static_cast<cuuint64_t>(row_bytes)};
        cuuint32_t boxes[] = {width, packed_rows}, steps[] = {8, 1};  // the first counts with interleaving alone
        return encode(&map, type, 2, device_in.data, sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                      CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    EXPECT(encoded(packed_columns, columns - 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(encoded(packed_columns / 2, columns) == (apart == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
    EXPECT(encoded(packed_columns, columns) == CUDA_SUCCESS);
    load_packed<<<1, 1>>>(map, device_out.data, packed_rows * packets * bytes);
    CUDA_LAUNCHED();
    auto out = device_out.host();
    for (int row = 0; row < packed_rows; ++row)
        for (int byte = 0; byte < packets * bytes; ++byte) {
            int at = (row * packets + byte / bytes) * apart + byte % bytes;
            EXPECT_NEAR(out[at], 6 + row < rows ? in[(6 + row) * row_bytes + packets * bytes + byte] : 0, 0, at);
        }
}

int main() {
    const int width = 80, height = 50;
    std::vector<int> in(width * height), untouched(width * height, -7);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i);
    check::Array<int> device_in(in);
    auto encode = check::driver_function<Encode>("cuTensorMapEncodeTiled");
    if (!encode) return check::finish();
    for (auto swizzle : {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B}) {
        check::Array<int> device_out(untouched);
        CUtensorMap from, to;
        EXPECT(describe(encode, from, device_in.data, width, height, swizzle) == CUDA_SUCCESS);
        EXPECT(describe(encode, to, device_out.data, width, height, CU_TENSOR_MAP_SWIZZLE_NONE) == CUDA_SUCCESS);
        for (auto [x, y] : {std::pair{0, 0}, {64, 32}, {-4, 40}}) {
            through_shared<<<1, box>>>(from, to, x, y, swizzle != CU_TENSOR_MAP_SWIZZLE_NONE);
            CUDA_LAUNCHED();
        }
        auto inside = [](int row, int column, int x, int y) {
            return column >= x && column < x + box && row >= y && row < y + box;
        };
        auto out = device_out.host();
        for (int row = 0; row < height; ++row)
            for (int column = 0; column < width; ++column) {
                bool copied = inside(row, column, 0, 0) || inside(row, column, 64, 32) || inside(row, column, -4, 40);
                int at = row * width + column;
                EXPECT_NEAR(out[at], copied ? in[at] + 1 : -7, 0, at);
            }
    }
    cudaDeviceProp properties;
    CUDA_OK(cudaGetDeviceProperties(&properties, 0));
    if (properties.major >= 10) {
        values_of_few_bits(encode, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B, 8, 8);
        values_of_few_bits(encode, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B, 8, 16);
        values_of_few_bits(encode, CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B, 12, 16);
    }
    CUtensorMap bad;
    EXPECT(describe(encode, bad, device_in.data + 1, width, height, CU_TENSOR_MAP_SWIZZLE_NONE) ==
           CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, device_in.data, width, height, CU_TENSOR_MAP_SWIZZLE_64B) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(describe(encode, bad, device_in.data, 0, height, CU_TENSOR_MAP_SWIZZLE_NONE) == CUDA_ERROR_INVALID_VALUE);
    return check::finish();
}
