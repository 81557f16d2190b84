# The CUDA toolkit: cuda.h (target tnr_cuda_headers), nvml.h (target tnr_nvml_headers), nvcc for the test programs
# (variable TNR_NVCC) and the folder they came from (variable TNR_CUDA_ROOT). Headers only: nothing of ours links
# NVIDIA's libraries.
#
# Asked in this order: CUDAToolkit_ROOT (variable or environment), /usr/local/cuda, NVIDIA's wheels on PyPI. A toolkit
# nobody asked for is taken only if it is the version that gpu_client/protocol/cuda.calls describes.
set(cuda_version_wanted 13000)  # CUDA_VERSION in cuda.h: 1000 * major + 10 * minor

function(cuda_version_at root result)
    set(found 0)
    if(EXISTS ${root}/include/cuda.h AND EXISTS ${root}/bin/nvcc)
        file(STRINGS ${root}/include/cuda.h line REGEX "^#define CUDA_VERSION [0-9]+" LIMIT_COUNT 1)
        string(REGEX REPLACE "[^0-9]" "" found "${line}")
    endif()
    set(${result} ${found} PARENT_SCOPE)
endfunction()

function(fetch_nvidia_wheels list result)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env TNR_THIRD_PARTY=${TNR_THIRD_PARTY}
                ${CMAKE_SOURCE_DIR}/packaging/third_party/nvidia-wheels ${list}
        OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    set(${result} ${folder} PARENT_SCOPE)
endfunction()

if(CUDAToolkit_ROOT)
    set(TNR_CUDA_ROOT ${CUDAToolkit_ROOT})
elseif(DEFINED ENV{CUDAToolkit_ROOT})
    set(TNR_CUDA_ROOT $ENV{CUDAToolkit_ROOT})
else()
    set(TNR_CUDA_ROOT /usr/local/cuda)
    cuda_version_at(${TNR_CUDA_ROOT} cuda_version)
    if(NOT cuda_version EQUAL cuda_version_wanted)
        fetch_nvidia_wheels(cuda TNR_CUDA_ROOT)
    endif()
endif()
cuda_version_at(${TNR_CUDA_ROOT} cuda_version)
if(cuda_version EQUAL 0)
    message(FATAL_ERROR "no CUDA toolkit at ${TNR_CUDA_ROOT}: include/cuda.h or bin/nvcc is missing")
elseif(NOT cuda_version EQUAL cuda_version_wanted)
    message(WARNING "the toolkit at ${TNR_CUDA_ROOT} is version ${cuda_version}, cuda.calls describes ${cuda_version_wanted}")
endif()
message(STATUS "CUDA toolkit: ${TNR_CUDA_ROOT}")
set(TNR_NVCC ${TNR_CUDA_ROOT}/bin/nvcc)
file(WRITE ${CMAKE_BINARY_DIR}/cuda_root ${TNR_CUDA_ROOT})  # for scripts

set(nvml_root ${TNR_CUDA_ROOT})
if(NOT EXISTS ${nvml_root}/include/nvml.h)
    fetch_nvidia_wheels(nvml nvml_root)
endif()

add_library(tnr_cuda_headers INTERFACE)
target_include_directories(tnr_cuda_headers SYSTEM INTERFACE ${TNR_CUDA_ROOT}/include)
add_library(tnr_nvml_headers INTERFACE)
target_include_directories(tnr_nvml_headers SYSTEM INTERFACE ${nvml_root}/include)
