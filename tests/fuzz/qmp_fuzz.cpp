// Any bytes as a line from QEMU: an answer, or none.
#include <cstddef>
#include <cstdint>

#include "api_client/providers/local/qmp.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string line(reinterpret_cast<const char*>(data), size);
    auto answer = tnr::local::parse_qmp_answer(line, "quit");
    if (answer && !*answer && answer->error().what.find("QEMU refused quit") != 0) __builtin_trap();
    return 0;
}
