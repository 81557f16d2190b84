// cuLinkComplete's result: see code_units.hpp. Programs treat it as a cubin: they write it to files and read the ELF
// header, so it is one. The section of PTX holds a name and a text per unit, each ended by NUL.
#include <cstring>

#include "gpu_client/protocol/elf.hpp"
#include "gpu_server/emulated_gpu/driver/code_units.hpp"

namespace tnr::emulated {
namespace {

constexpr unsigned char abi_cuda = 0x41, abi_version = 8;  // as in cubins of CUDA 13
constexpr uint32_t flags_sm_120 = 120 << 8;
constexpr uint32_t section_type_ptx = 0x80746e72;  // above SHT_LOUSER: a program's own
constexpr std::string_view section_names("\0.shstrtab\0.tnr.ptx", 20);
constexpr size_t section_count = 3;  // none, names, PTX

template <class T>
void put(std::vector<std::byte>& image, uint64_t at, const T& value) {
    std::memcpy(image.data() + at, &value, sizeof value);
}
void put_text(std::vector<std::byte>& image, uint64_t at, std::string_view text) {
    std::memcpy(image.data() + at, text.data(), text.size());
}

Elf64_Ehdr elf_header(uint64_t sections_at) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_ident[EI_OSABI] = abi_cuda;
    header.e_ident[EI_ABIVERSION] = abi_version;
    header.e_type = ET_EXEC;
    header.e_machine = elf::machine_cuda;
    header.e_version = EV_CURRENT;
    header.e_flags = flags_sm_120;
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = section_count;
    header.e_shstrndx = 1;
    header.e_shoff = sections_at;
    return header;
}

Elf64_Shdr section(uint32_t name, uint32_t type, uint64_t at, uint64_t bytes) {
    Elf64_Shdr header{};
    header.sh_name = name;
    header.sh_type = type;
    header.sh_offset = at;
    header.sh_size = bytes;
    header.sh_addralign = 1;
    return header;
}

// The bytes of the section of PTX; empty where there is none.
std::string_view ptx_section(std::span<const std::byte> image) {
    auto header = elf::header(image);
    if (!header || header->e_machine != elf::machine_cuda) return {};
    auto sections = elf::sections(image);
    if (!sections) return {};
    for (auto& section : *sections)
        if (section.type == section_type_ptx && section.bytes)
            return {reinterpret_cast<const char*>(section.bytes->data()), section.bytes->size()};
    return {};
}

}  // namespace

std::vector<std::byte> linked_image(const CodeUnits& units) {
    std::string ptx;
    for (auto& unit : units) ptx.append(unit.name.c_str()).append(1, '\0').append(unit.text.c_str()).append(1, '\0');
    uint64_t names_at = sizeof(Elf64_Ehdr), ptx_at = names_at + section_names.size();
    uint64_t sections_at = (ptx_at + ptx.size() + 7) & ~uint64_t{7};
    std::vector<std::byte> image(sections_at + section_count * sizeof(Elf64_Shdr));  // the first section: all zeros
    put(image, 0, elf_header(sections_at));
    put_text(image, names_at, section_names);
    put_text(image, ptx_at, ptx);
    put(image, sections_at + sizeof(Elf64_Shdr), section(1, SHT_STRTAB, names_at, section_names.size()));
    put(image, sections_at + 2 * sizeof(Elf64_Shdr), section(11, section_type_ptx, ptx_at, ptx.size()));
    return image;
}

CUresult add_units_of_elf(std::span<const std::byte> image, CodeUnits& units, std::string& error) {
    auto rest = ptx_section(image);
    if (rest.empty()) {
        error = "this is a cubin: the emulated GPU runs PTX only";
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    auto next = [&] {
        auto text = rest.substr(0, rest.find('\0'));
        rest.remove_prefix(std::min(text.size() + 1, rest.size()));
        return std::string(text);
    };
    while (!rest.empty()) {
        auto name = next();
        units.push_back({std::move(name), next()});
    }
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
