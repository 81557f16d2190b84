#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
namespace tnr::ptx {
bool decode_half(Decoder&) {
    return false;
}
bool decode_async(Decoder&) {
    return false;
}
bool decode_matrix(Decoder&) {
    return false;
}
}  // namespace tnr::ptx
