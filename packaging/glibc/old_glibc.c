/* Lets what was built on a newer system run with glibc 2.34 (RHEL 9; Ubuntu 22.04 has 2.35, Debian 12 has 2.36).
 *
 * Linking against a newer glibc binds some functions to versions that an older one does not have, and ld.so then
 * refuses the whole library. None of them is called by our own code: libgcc's unwinder wants _dl_find_object (2.35),
 * std::random_device wants arc4random (2.36), libzmq takes strlcpy where there is one (2.38), SQLite's fmod has a new version
 * (2.38), and since 2.38 headers turn strtol and sscanf into __isoc23_ variants. Linked into every shipped library and program
 * (tnr_self_contained), hidden, these definitions take their place. A function missing here is found by
 * tests/packaging/shipped_outputs. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HIDDEN __attribute__((visibility("hidden")))

#if __GLIBC_PREREQ(2, 35)

struct search {
    uintptr_t address;
    struct dl_find_object* result;
};

/* Fills in *result when this object contains the address; 1 ends the iteration. */
static int look_in_object(struct dl_phdr_info* object, size_t size, void* opaque) {
    struct search* search = opaque;
    uintptr_t start = UINTPTR_MAX, end = 0, eh_frame = 0;
    int contains = 0;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr)* header = &object->dlpi_phdr[i];
        uintptr_t first = object->dlpi_addr + header->p_vaddr, last = first + header->p_memsz;
        if (header->p_type == PT_GNU_EH_FRAME) eh_frame = first;
        if (header->p_type != PT_LOAD) continue;
        if (first < start) start = first;
        if (last > end) end = last;
        if (search->address >= first && search->address < last) contains = 1;
    }
    if (!contains || !eh_frame) return 0;
    *search->result = (struct dl_find_object){
        .dlfo_map_start = (void*)start, .dlfo_map_end = (void*)end, .dlfo_eh_frame = (void*)eh_frame};
    return 1;
}

/* Only exceptions come here, so walking the list of objects, as unwinders did before 2.35, is fast enough. */
HIDDEN int _dl_find_object(void* address, struct dl_find_object* result) {
    struct search search = {(uintptr_t)address, result};
    return dl_iterate_phdr(look_in_object, &search) == 1 ? 0 : -1;
}

#endif

#if __GLIBC_PREREQ(2, 36)

HIDDEN uint32_t arc4random(void) {
    uint32_t number;
    /* So few bytes are never delivered in part; the call fails only where the kernel lacks or forbids it, and going on
       without randomness would be worse than ending. */
    if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
    return number;
}

#endif

#if __GLIBC_PREREQ(2, 38)

HIDDEN size_t strlcpy(char* to, const char* from, size_t size) {
    size_t length = strlen(from);
    if (size) {
        size_t copied = length < size ? length : size - 1;
        memcpy(to, from, copied);
        to[copied] = 0;
    }
    return length;
}

/* The new one no longer sets errno; the old one is still in every glibc, under the version of the architecture's first. */
#ifdef __x86_64__
__asm__(".symver old_fmod, fmod@GLIBC_2.2.5");
#else
__asm__(".symver old_fmod, fmod@GLIBC_2.17");
#endif
extern double old_fmod(double, double);
HIDDEN double fmod(double x, double y) {
    return old_fmod(x, y);
}

/* They differ from the old ones in accepting 0b101, which none of our inputs may contain. */
#define OLD_STRTO(type, name)                                              \
    extern type old_##name(const char*, char**, int) __asm__(#name);       \
    HIDDEN type __isoc23_##name(const char* text, char** rest, int base) { \
        return old_##name(text, rest, base);                               \
    }
OLD_STRTO(long, strtol)
OLD_STRTO(long long, strtoll)
OLD_STRTO(unsigned long, strtoul)
OLD_STRTO(unsigned long long, strtoull)

extern int old_vsscanf(const char*, const char*, va_list) __asm__("vsscanf");
HIDDEN int __isoc23_vsscanf(const char* text, const char* format, va_list values) {
    return old_vsscanf(text, format, values);
}
HIDDEN int __isoc23_sscanf(const char* text, const char* format, ...) {
    va_list values;
    va_start(values, format);
    int count = old_vsscanf(text, format, values);
    va_end(values);
    return count;
}

#endif
