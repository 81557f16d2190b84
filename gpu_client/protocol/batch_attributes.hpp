// What cuMemcpyBatchAsync and its kin may be told of their copies: the client's check and the emulated GPU's.
// Whoever includes this has included cuda.h.
#pragma once

#include <cstddef>

namespace tnr {

inline bool is_batch_order(CUmemcpySrcAccessOrder order) {
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}
inline bool is_batch_flag(unsigned flags) {
    return (flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0;
}

// Every copy has attributes: the first entry begins at 0, and each further one after the one before.
inline bool are_batch_attributes(const CUmemcpyAttributes* attributes, const size_t* from, size_t number,
                                 size_t copies) {
    if (!attributes || !from || number == 0 || number > copies || from[0] != 0 || from[number - 1] >= copies)
        return false;
    for (size_t i = 0; i < number; ++i) {
        if (i > 0 && from[i] <= from[i - 1]) return false;
        if (!is_batch_order(attributes[i].srcAccessOrder) || !is_batch_flag(attributes[i].flags)) return false;
    }
    return true;
}

}  // namespace tnr
