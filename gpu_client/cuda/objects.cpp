// See objects.hpp.
#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

Contexts& contexts() {
    static auto* all = new Contexts;
    return *all;
}
Streams& streams() {
    static auto* all = new Streams;
    return *all;
}
Events& events() {
    static auto* all = new Events;
    return *all;
}
Libraries& libraries() {
    static auto* all = new Libraries;
    return *all;
}
Functions& functions() {
    static auto* all = new Functions;
    return *all;
}

}  // namespace tnr::cuda
