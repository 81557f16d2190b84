// Filling memory with bytes, words and rows.
#include "gpu.hpp"

using namespace driver_api;
using Bytes = std::vector<unsigned char>;

TEST_CASE("memory is filled with units of one, two and four bytes", "[memset]") {
    Gpu gpu;
    Memory memory(Bytes(64, 0));
    Bytes expected(64, 0);
    CU_OK(cu.cuMemsetD8(memory.address + 3, 0x12, 5));
    for (int i = 3; i < 8; ++i) expected[i] = 0x12;
    CU_OK(cu.cuMemsetD16(memory.address + 10, 0x3456, 3));
    for (int i = 10; i < 16; i += 2) expected[i] = 0x56, expected[i + 1] = 0x34;
    CU_OK(cu.cuMemsetD32(memory.address + 20, 0x789abcde, 2));
    for (int i = 20; i < 28; i += 4)
        expected[i] = 0xde, expected[i + 1] = 0xbc, expected[i + 2] = 0x9a, expected[i + 3] = 0x78;
    CHECK(memory.read<unsigned char>(64) == expected);
}

TEST_CASE("a large fill reaches each of its bytes, and no other", "[memset]") {
    Gpu gpu;
    const size_t bytes = (size_t{40} << 20) + 13;  // no multiple of anything
    Memory memory(Bytes(bytes + 2, 1));
    CU_OK(cu.cuMemsetD8(memory.address + 1, 7, bytes));
    Bytes expected(bytes + 2, 7);
    expected.front() = expected.back() = 1;
    CHECK((memory.read<unsigned char>(bytes + 2) == expected));  // without its text, which would be long
}

TEST_CASE("asynchronous fills happen in the order of their stream", "[memset]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Bytes(64, 0));
    CU_OK(cu.cuMemsetD8Async(memory.address, 1, 64, stream));
    CU_OK(cu.cuMemsetD16Async(memory.address, 0x0202, 16, stream));
    CU_OK(cu.cuMemsetD32Async(memory.address, 0x03030303, 4, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    Bytes expected(64, 1);
    std::fill(expected.begin(), expected.begin() + 32, 2);
    std::fill(expected.begin(), expected.begin() + 16, 3);
    CHECK(memory.read<unsigned char>(64) == expected);
}

TEST_CASE("rows are filled up to their width and not into the padding", "[memset]") {
    Gpu gpu;
    const size_t pitch = 32, rows = 5;
    Memory memory(Bytes(pitch * rows, 9));
    Bytes expected(pitch * rows, 9);
    auto fill = [&](size_t bytes, unsigned char value) {
        for (size_t row = 0; row < rows; ++row) std::fill_n(expected.begin() + long(row * pitch), bytes, value);
    };
    CU_OK(cu.cuMemsetD2D8(memory.address, pitch, 1, 19, rows));
    fill(19, 1);
    CU_OK(cu.cuMemsetD2D16(memory.address, pitch, 0x0202, 7, rows));
    fill(14, 2);
    CU_OK(cu.cuMemsetD2D32(memory.address, pitch, 0x03030303, 2, rows));
    fill(8, 3);
    CU_OK(cu.cuMemsetD2D8Async(memory.address, pitch, 4, 3, rows, nullptr));
    fill(3, 4);
    CHECK(memory.read<unsigned char>(pitch * rows) == expected);
}

TEST_CASE("fills that are misaligned, too long or nowhere are refused", "[memset]") {
    Gpu gpu;
    Memory memory(4096);
    CU_CHECK(cu.cuMemsetD16(memory.address + 1, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD32(memory.address + 2, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD8(0x10, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD8(memory.address, 0, size_t{1} << 40), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD8(memory.address, 0, 0), CUDA_SUCCESS);
}

TEST_CASE("rows that overlap or do not end are refused by the call itself, and no rows are none", "[memset]") {
    Gpu gpu;
    Stream stream;
    Memory memory(4096);
    const size_t endless = SIZE_MAX / 4 + 1;
    CU_CHECK(cu.cuMemsetD2D8(memory.address, 15, 0, 16, 2), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD2D16(memory.address, 30, 0, 16, 2), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD2D32(memory.address, 66, 0, 16, 2), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD2D8(memory.address, endless, 0, 16, 5), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD2D32(memory.address, 0, 0, endless, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD2D8Async(memory.address, 15, 0, 16, 2, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD2D16Async(memory.address, 30, 0, 16, 2, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD2D32Async(memory.address, 66, 0, 16, 2, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD2D8(memory.address, 512, 0, 16, 0), CUDA_SUCCESS);
    CU_CHECK(cu.cuMemsetD2D32Async(memory.address, 512, 0, 16, 0, stream), CUDA_SUCCESS);
    CU_CHECK(cu.cuMemsetD2D8(memory.address, 0, 0, 16, 1), CUDA_SUCCESS);  // the pitch of one row means nothing
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("a large fill reaches its last byte", "[memset]") {
    Gpu gpu;
    const size_t bytes = (size_t{32} << 20) + 5;
    Memory memory(bytes);
    CU_OK(cu.cuMemsetD8(memory.address, 0x77, bytes));
    CHECK(memory.read<unsigned char>(bytes) == Bytes(bytes, 0x77));
}

#ifndef TNR_THREAD_SANITIZER  // it tests what comes of a race
TEST_CASE("what a kernel does to memory that is being filled stays where the kernel did it", "[memset]") {
    Gpu gpu;
    Stream fills(CU_STREAM_NON_BLOCKING), work(CU_STREAM_NON_BLOCKING);
    Module module;
    const unsigned changed = 4096, words = 1u << 20;
    Memory memory(words * sizeof(unsigned));
    CU_OK(cu.cuCtxSynchronize());
    int64_t elsewhere = 0;
    for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 60; ++i)
            CU_OK(launch_shaped(module.function("add"), changed / 256, 256, 0, work, memory.address, int(changed), 1));
        CU_OK(cu.cuMemsetD32Async(memory.address, 5, words, fills));
        CU_OK(cu.cuCtxSynchronize());
        auto seen = memory.read<unsigned>(words);
        elsewhere += std::count_if(seen.begin() + changed, seen.end(), [](unsigned word) { return word != 5; });
    }
    CHECK(elsewhere == 0);
}
#endif
