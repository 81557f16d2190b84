# cuda.h (headers only: nothing of ours links NVIDIA's libraries) and nvcc for the test programs.
set(TNR_CUDA_ROOT /usr/local/cuda CACHE PATH "CUDA toolkit")
add_library(tnr_cuda_headers INTERFACE)
target_include_directories(tnr_cuda_headers SYSTEM INTERFACE ${TNR_CUDA_ROOT}/include)
find_program(TNR_NVCC nvcc HINTS ${TNR_CUDA_ROOT}/bin REQUIRED)
