// Code images come from tenants: whatever the bytes are, counting their variables must not go outside them, nor take long.
#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu_server/worker/image_variables.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    (void)tnr::worker::variable_bytes(std::as_bytes(std::span(data, size)));
    (void)tnr::worker::variable_bytes_of_ptx({reinterpret_cast<const char*>(data), size});
    return 0;
}
