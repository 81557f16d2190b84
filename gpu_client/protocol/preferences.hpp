// What a kernel or a context may prefer, which GPUs of today ignore. The enums have no negative values, so C++ compares
// them as int: both ends are to be looked at. Whoever includes this has included cuda.h.
#pragma once

namespace tnr {

inline CUresult check_preference(CUfunc_cache wanted) {
    const bool known = wanted >= CU_FUNC_CACHE_PREFER_NONE && wanted <= CU_FUNC_CACHE_PREFER_EQUAL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

inline CUresult check_preference(CUsharedconfig wanted) {
    const bool known =
        wanted >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && wanted <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tnr
