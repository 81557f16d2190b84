// The assembler puts each file into read-only data; CMake names the files (cli/install/CMakeLists.txt).
#include "cli/install/embedded.hpp"

#include <openssl/evp.h>

#include <array>

#ifdef __APPLE__  // Mach-O
#define READ_ONLY ".section __TEXT,__const\n"
#define LABEL "_tnr_embedded_"
#define AS_BEFORE ".text\n"
#else  // ELF
#define READ_ONLY ".section .rodata\n"
#define LABEL "tnr_embedded_"
#define AS_BEFORE ".previous\n"
#endif

// A file the build does not have becomes no bytes at all.
#define EMBED(symbol, path)                                \
    asm(READ_ONLY ".balign 16\n" LABEL #symbol             \
                  "_begin:\n"                              \
                  ".incbin \"" path "\"\n" LABEL #symbol   \
                  "_end:\n"                                \
                  ".byte 0\n" AS_BEFORE);                  \
    extern "C" const char tnr_embedded_##symbol##_begin[]; \
    extern "C" const char tnr_embedded_##symbol##_end[];

EMBED(libcuda, TNR_EMBED_FOLDER "/libcuda.so.1")
EMBED(libnvidia_ml, TNR_EMBED_FOLDER "/libnvidia-ml.so.1")
EMBED(nvidia_smi, TNR_EMBED_FOLDER "/nvidia-smi")
EMBED(gpu_probe, TNR_EMBED_FOLDER "/tnr-gpu-probe")
EMBED(idle_program, TNR_INSTALL_FOLDER "/tnr-idle")
EMBED(idle_service, TNR_INSTALL_FOLDER "/tnr-idle.service")
EMBED(sync_server, TNR_EMBED_FOLDER "/tnr-sync-server")
EMBED(support, TNR_EMBED_FOLDER "/support.md")

namespace tnr::install {
namespace {

std::string_view between(const char* begin, const char* end) {
    return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::vector<Embedded> embedded_files() {
    std::vector<Embedded> files = {
        {"libcuda.so.1", between(tnr_embedded_libcuda_begin, tnr_embedded_libcuda_end)},
        {"libnvidia-ml.so.1", between(tnr_embedded_libnvidia_ml_begin, tnr_embedded_libnvidia_ml_end)},
        {"nvidia-smi", between(tnr_embedded_nvidia_smi_begin, tnr_embedded_nvidia_smi_end)},
        {"tnr-gpu-probe", between(tnr_embedded_gpu_probe_begin, tnr_embedded_gpu_probe_end)},
        {"support.md", between(tnr_embedded_support_begin, tnr_embedded_support_end)},
    };
    std::erase_if(files, [](const Embedded& file) { return file.bytes.empty(); });
    return files;
}

std::string_view idle_program() {
    return between(tnr_embedded_idle_program_begin, tnr_embedded_idle_program_end);
}

std::string_view idle_service() {
    return between(tnr_embedded_idle_service_begin, tnr_embedded_idle_service_end);
}

Embedded sync_server() {
    return {"tnr-sync-server", between(tnr_embedded_sync_server_begin, tnr_embedded_sync_server_end)};
}

std::string sha256(std::string_view bytes) {
    std::array<unsigned char, 32> digest{};
    EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
    std::string text;
    for (unsigned char byte : digest) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

std::string Embedded::sha256() const {
    return install::sha256(bytes);
}

}  // namespace tnr::install
