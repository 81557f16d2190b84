// See elf.hpp.
#include "gpu_client/protocol/elf.hpp"

namespace tnr::elf {
namespace {

Error malformed_elf(const std::string& what) {
    return {Error::Kind::usage, what};
}

Result<std::vector<Elf64_Shdr>> section_table(Bytes file, const Elf64_Ehdr& header) {
    if (header.e_shoff == 0) return std::vector<Elf64_Shdr>{};
    if (header.e_shentsize != sizeof(Elf64_Shdr)) return malformed_elf("odd section headers");
    auto first = read_at<Elf64_Shdr>(file, header.e_shoff);
    if (!first) return malformed_elf("its section table is outside the file");
    uint64_t count = header.e_shnum ? header.e_shnum : first->sh_size;  // above 65,279 the count is in entry 0
    if (count > sections_max) return malformed_elf("too many sections");
    auto bytes = slice(file, header.e_shoff, count * sizeof(Elf64_Shdr));
    if (!bytes) return malformed_elf("its section table is outside the file");
    std::vector<Elf64_Shdr> table(count);
    if (count) std::memcpy(table.data(), bytes->data(), bytes->size());
    return table;
}

Bytes section_names(Bytes file, const Elf64_Ehdr& header, const std::vector<Elf64_Shdr>& table) {
    if (table.empty()) return {};
    uint64_t index = header.e_shstrndx == SHN_XINDEX ? table[0].sh_link : header.e_shstrndx;
    if (index >= table.size()) return {};
    return slice(file, table[index].sh_offset, table[index].sh_size).value_or(Bytes{});
}

std::string_view name_at(Bytes names, uint64_t offset) {
    if (offset >= names.size()) return {};
    auto text = reinterpret_cast<const char*>(names.data()) + offset;
    return {text, strnlen(text, names.size() - offset)};
}

}  // namespace

std::optional<Elf64_Ehdr> header(Bytes file) {
    auto header = read_at<Elf64_Ehdr>(file, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
        return std::nullopt;
    return header;
}

Result<std::vector<Section>> sections(Bytes file) {
    auto begin = header(file);
    if (!begin) return malformed_elf("not an ELF file");
    auto table = section_table(file, *begin);
    if (!table) return table.error();
    Bytes names = section_names(file, *begin, *table);
    std::vector<Section> found;
    for (const Elf64_Shdr& entry : *table)
        found.push_back({name_at(names, entry.sh_name), entry.sh_type,
                         entry.sh_type == SHT_NOBITS ? Bytes{} : slice(file, entry.sh_offset, entry.sh_size),
                         entry.sh_size});
    return found;
}

}  // namespace tnr::elf
