// Streams that wait for words of either size on each of the conditions, and streams that write them.
#include "gpu.hpp"

using namespace driver_api;

namespace {

struct WordCondition {
    unsigned flags;
    uint64_t wanted, before, after;  // what the word is compared with, and what it is before the wait is over and then
};
constexpr uint64_t ones = UINT64_MAX;
constexpr WordCondition conditions[] = {
    {CU_STREAM_WAIT_VALUE_EQ, 7, 6, 7},
    {CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 9},
    {CU_STREAM_WAIT_VALUE_AND, 6, 9, 2},
    {CU_STREAM_WAIT_VALUE_NOR, 0, ones, ones - 1},
};

void wait_for_word(CUstream stream, CUdeviceptr word, bool wide, const WordCondition& condition) {
    if (wide) CU_OK(cu.cuStreamWaitValue64(stream, word, condition.wanted, condition.flags));
    if (!wide) CU_OK(cu.cuStreamWaitValue32(stream, word, cuuint32_t(condition.wanted), condition.flags));
}

void write_word(CUstream stream, CUdeviceptr word, bool wide, uint64_t value) {
    if (wide) CU_OK(cu.cuStreamWriteValue64(stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT));
    if (!wide) CU_OK(cu.cuStreamWriteValue32(stream, word, cuuint32_t(value), CU_STREAM_WRITE_VALUE_DEFAULT));
}

}  // namespace

TEST_CASE("a stream waits for words of either size on every condition", "[stream words]") {
    Gpu gpu;
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 1);
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR) == 1);
    CUdeviceptr word = 0;
    CU_OK(cu.cuMemAlloc(&word, 8));
    CUstream waiting = nullptr, writing = nullptr;
    CU_OK(cu.cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    CU_OK(cu.cuStreamCreate(&writing, CU_STREAM_NON_BLOCKING));
    for (bool wide : {false, true})
        for (auto& condition : conditions) {
            CAPTURE(wide, condition.flags);
            write_word(writing, word, wide, condition.before);
            CU_OK(cu.cuStreamSynchronize(writing));
            wait_for_word(waiting, word, wide, condition);
            CHECK(cu.cuStreamQuery(waiting) == CUDA_ERROR_NOT_READY);
            write_word(writing, word, wide, condition.after);
            CU_OK(cu.cuStreamSynchronize(waiting));
        }
    CU_OK(cu.cuStreamDestroy(waiting));
    CU_OK(cu.cuStreamDestroy(writing));
    CU_OK(cu.cuMemFree(word));
}
