// kernels.cu's images inside the test binary, so that it can be carried to another machine as one file.
#include "gpu.hpp"

// The assembler looks for the files in the build folder (-I). PTX must end with a NUL.
#define TNR_EMBED(name, file)                                                                                          \
    asm(".section .rodata\n.balign 16\n" #name "_begin:\n.incbin \"" file "\"\n" #name "_end:\n.byte 0\n.previous\n"); \
    extern "C" const unsigned char name##_begin[], name##_end[];

TNR_EMBED(tnr_kernels_ptx, "kernels.ptx")
TNR_EMBED(tnr_kernels_zstd, "kernels.fatbin")
TNR_EMBED(tnr_kernels_lz4, "kernels_lz4.fatbin")
TNR_EMBED(tnr_kernels_plain, "kernels_plain.fatbin")
TNR_EMBED(tnr_kernels_sm75, "kernels_sm75.fatbin")
TNR_EMBED(tnr_unit_one, "unit_one.fatbin")
TNR_EMBED(tnr_unit_other, "unit_other.fatbin")
TNR_EMBED(tnr_unit_object, "unit_one.o")
TNR_EMBED(tnr_unit_library, "libunit_other.a")

namespace driver_api {

#define TNR_IMAGE(name)                                 \
    Image {                                             \
        name##_begin, size_t(name##_end - name##_begin) \
    }
Image ptx_image() {
    return TNR_IMAGE(tnr_kernels_ptx);
}
Image fatbin_image() {
    return TNR_IMAGE(tnr_kernels_zstd);
}
Image fatbin_lz4_image() {
    return TNR_IMAGE(tnr_kernels_lz4);
}
Image fatbin_plain_image() {
    return TNR_IMAGE(tnr_kernels_plain);
}
Image fatbin_sm75_image() {
    return TNR_IMAGE(tnr_kernels_sm75);
}
std::array<Image, 2> separate_images() {
    return {TNR_IMAGE(tnr_unit_one), TNR_IMAGE(tnr_unit_other)};
}
Image object_image() {
    return TNR_IMAGE(tnr_unit_object);
}
Image library_image() {
    return TNR_IMAGE(tnr_unit_library);
}

}  // namespace driver_api
