// From a program's pointer to code to the bytes that are sent: the one entry that fits the GPU.
#pragma once

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/image.hpp"

namespace tnr::cuda {

// CUDA_ERROR_INVALID_IMAGE if it is no image, CUDA_ERROR_NO_BINARY_FOR_GPU if nothing in it fits the device. `found`
// borrows the program's memory.
CUresult image_for_device(const void* image, const Device& device, Image& found);
// A file's contents as they are.
CUresult read_file(const char* path, wire::Bytes& bytes);
// image_for_device() of a file's contents; borrows nothing.
CUresult image_from_file(const char* path, const Device& device, Image& found);

}  // namespace tnr::cuda
