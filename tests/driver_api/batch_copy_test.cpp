// Copies in batches.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "arrays.hpp"

using namespace driver_api;

namespace {

CUmemcpyAttributes ordered(CUmemcpySrcAccessOrder order) {
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = order;
    return attributes;
}

}  // namespace

TEST_CASE("a batch copies in every direction", "[copy][batch]") {
    Gpu gpu;
    Stream stream;
    std::vector<int> in(100), back(100);
    std::iota(in.begin(), in.end(), 5);
    Memory one(400), two(in);
    int temporary[4] = {1, 2, 3, 4};
    Memory three(16);
    CUdeviceptr to[] = {one.address, address_of(back.data()), three.address};
    CUdeviceptr from[] = {address_of(in.data()), two.address, address_of(temporary)};
    size_t sizes[] = {400, 400, 16};
    CUmemcpyAttributes attributes[] = {ordered(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
                                       ordered(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)};
    size_t first[] = {0, 2};
    CU_OK(cu.cuMemcpyBatchAsync(to, from, sizes, 3, attributes, first, 2, stream));
    std::memset(temporary, 0, sizeof temporary);  // was the driver's only during the call
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(one.read<int>(100) == in);
    CHECK(back == in);
    CHECK(three.read<int>(4) == std::vector<int>{1, 2, 3, 4});
}

TEST_CASE("a batch copies from and to memory that the program and the GPU share", "[copy][batch][pinned]") {
    Gpu gpu;
    Stream stream;
    constexpr int count = 2'000;
    int *pinned = nullptr, *mapped = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&pinned), count * sizeof(int), 0));
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&mapped), count * sizeof(int), CU_MEMHOSTALLOC_DEVICEMAP));
    std::fill(pinned, pinned + count, 1), std::fill(mapped, mapped + count, 2);
    std::vector<int> in(count, 5);
    Memory memory(in), other(count * sizeof(int));
    const Module module;
    const auto add = module.function("add");
    CU_OK(launch_shaped(add, 1, 32, 0, stream, address_of(pinned), count, 10));  // shared from now on
    CU_OK(launch_shaped(add, 1, 32, 0, stream, address_of(mapped), count, 10));
    CUdeviceptr to[] = {address_of(pinned), other.address}, from[] = {memory.address, address_of(mapped)};
    size_t sizes[] = {count / 2 * sizeof(int), count * sizeof(int)}, first[] = {0};
    CUmemcpyAttributes attributes[] = {ordered(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)};
    CU_OK(cu.cuMemcpyBatchAsync(to, from, sizes, 2, attributes, first, 1, stream));
    CU_OK(launch_shaped(add, 1, 32, 0, stream, address_of(pinned), count, 100));
    CU_OK(cu.cuStreamSynchronize(stream));
    std::vector<int> expected(count, 111);
    std::fill_n(expected.begin(), count / 2, 105);
    CHECK(std::vector<int>(pinned, pinned + count) == expected);
    CHECK(other.read<int>(count) == std::vector<int>(count, 12));
    CU_OK(cu.cuMemFreeHost(pinned));
    CU_OK(cu.cuMemFreeHost(mapped));
}

TEST_CASE("a batch without sound attributes is refused", "[copy][batch]") {
    Gpu gpu;
    Stream stream;
    Memory one(16), two(16);
    CUdeviceptr to[] = {one.address, one.address}, from[] = {two.address, two.address};
    size_t sizes[] = {16, 16}, none_first[] = {1}, twice[] = {0, 0}, first[] = {0};
    CUmemcpyAttributes good[] = {ordered(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM), ordered(CU_MEMCPY_SRC_ACCESS_ORDER_ANY)};
    CUmemcpyAttributes bad[] = {ordered(CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)};
    auto copy = [&](CUmemcpyAttributes* attributes, size_t* starts, size_t number, CUstream in) {
        return cu.cuMemcpyBatchAsync(to, from, sizes, 2, attributes, starts, number, in);
    };
    CU_CHECK(copy(good, first, 1, stream), CUDA_SUCCESS);
    CU_CHECK(copy(good, none_first, 1, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(copy(good, twice, 2, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(copy(bad, first, 1, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(copy(good, first, 0, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(copy(good, first, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemcpyBatchAsync(to, from, sizes, 0, good, first, 1, stream), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuStreamSynchronize(stream));
}

TEST_CASE("a batch of boxes goes into an array and out of it", "[copy][batch][array]") {
    Gpu gpu;
    Stream stream;
    Array array(described(8, 4, 2));
    std::vector<float> values(64), back(8);
    std::iota(values.begin(), values.end(), 0.0f);
    CUDA_MEMCPY3D_BATCH_OP into{};
    into.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    into.src.op.ptr.ptr = address_of(values.data());
    into.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    into.dst.op.array.array = array;
    into.extent = {8, 4, 2};
    into.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CU_OK(cu.cuMemcpy3DBatchAsync(1, &into, 0, stream));
    CUDA_MEMCPY3D_BATCH_OP out{};
    out.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    out.src.op.array.array = array;
    out.src.op.array.offset = {2, 1, 1};
    out.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    out.dst.op.ptr.ptr = address_of(back.data());
    out.dst.op.ptr.rowLength = 4;
    out.extent = {3, 2, 1};
    out.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    CU_OK(cu.cuMemcpy3DBatchAsync(1, &out, 0, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    for (size_t y = 0; y < 2; ++y)
        for (size_t x = 0; x < 3; ++x) CHECK(back[y * 4 + x] == values[32 + (y + 1) * 8 + x + 2]);
    out.extent.width = 7;  // beyond the array
    CU_CHECK(cu.cuMemcpy3DBatchAsync(1, &out, 0, stream), CUDA_ERROR_INVALID_VALUE);
    out.extent.width = 0;
    CU_CHECK(cu.cuMemcpy3DBatchAsync(1, &out, 0, stream), CUDA_ERROR_INVALID_VALUE);
}
