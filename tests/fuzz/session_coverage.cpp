// See session_coverage.hpp. The compiler puts the counters of a program or library into one section. Nothing that is loaded
// tells where it is, but the file does.
#include "tests/fuzz/session_coverage.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace tnr::fuzz {

static std::span<uint8_t> counters_of(void* library) {
    struct link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) std::abort();
    std::ifstream in(*map->l_name ? map->l_name : "/proc/self/exe", std::ios::binary);
    std::ostringstream whole;  // in blocks: it is hundreds of megabytes
    whole << in.rdbuf();
    const auto file = std::move(whole).str();
    auto* header = reinterpret_cast<const ElfW(Ehdr)*>(file.data());
    auto* sections = reinterpret_cast<const ElfW(Shdr)*>(file.data() + header->e_shoff);
    const char* names = file.data() + sections[header->e_shstrndx].sh_offset;
    for (auto& section : std::span(sections, header->e_shnum))
        if (std::string_view(names + section.sh_name) == "__sancov_cntrs")
            return {reinterpret_cast<uint8_t*>(map->l_addr + section.sh_addr), section.sh_size};
    std::abort();  // built without coverage
}

Coverage::Coverage(void* library) : counters_{counters_of(dlopen(nullptr, RTLD_NOW)), counters_of(library)} {
    size_t bytes = 0;
    for (auto& part : counters_) bytes += part.size();
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    shared_ = static_cast<uint8_t*>(memory);
}

void Coverage::save() {
    auto* to = shared_;
    for (auto& part : counters_) to = std::copy(part.begin(), part.end(), to);
}

void Coverage::restore() {
    auto* from = shared_;
    for (auto& part : counters_) std::copy_n(from, part.size(), part.begin()), from += part.size();
}

}  // namespace tnr::fuzz
