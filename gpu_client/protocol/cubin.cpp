// Reads the ELF tables and, per kernel, the section `.nv.info.<kernel>`: a stream of records of which we
// use those that place parameters in the constant bank.
#include "gpu_client/protocol/cubin.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "gpu_client/protocol/fatbin.hpp"

namespace tnr::cubin {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint16_t machine_cuda = 190;
constexpr uint32_t section_type_info = 0x70000000;
constexpr std::string_view info_prefix = ".nv.info.";

// Records: {u8 format, u8 attribute, u16 value or length}, then `length` bytes for format_sized.
constexpr uint8_t format_sized = 4;
constexpr uint8_t attribute_parameter = 0x17, attribute_parameter_bytes = 0x19, attribute_parameter_v2 = 0x45;

Error malformed(const std::string& what) {
    return {Error::Kind::usage, "cubin: " + what};
}

template <class T>
std::optional<T> read_at(Bytes bytes, uint64_t offset) {
    if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

std::optional<Bytes> slice(Bytes bytes, uint64_t offset, uint64_t size) {
    if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
    return bytes.subspan(offset, size);
}

std::optional<Elf64_Ehdr> elf_header(Bytes image) {
    auto header = read_at<Elf64_Ehdr>(image, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_machine != machine_cuda)
        return std::nullopt;
    return header;
}

Result<std::vector<Elf64_Shdr>> section_table(Bytes image, const Elf64_Ehdr& header) {
    if (header.e_shoff == 0) return std::vector<Elf64_Shdr>{};
    if (header.e_shentsize != sizeof(Elf64_Shdr)) return malformed("odd section headers");
    auto first = read_at<Elf64_Shdr>(image, header.e_shoff);
    if (!first) return malformed("its section table is outside the file");
    uint64_t count = header.e_shnum ? header.e_shnum : first->sh_size;  // above 65,279 the count is in entry 0
    if (count > sections_max) return malformed("too many sections");
    auto bytes = slice(image, header.e_shoff, count * sizeof(Elf64_Shdr));
    if (!bytes) return malformed("its section table is outside the file");
    std::vector<Elf64_Shdr> sections(count);
    if (count) std::memcpy(sections.data(), bytes->data(), bytes->size());
    return sections;
}

Bytes section_names(Bytes image, const Elf64_Ehdr& header, const std::vector<Elf64_Shdr>& sections) {
    if (sections.empty()) return {};
    uint64_t index = header.e_shstrndx == SHN_XINDEX ? sections[0].sh_link : header.e_shstrndx;
    if (index >= sections.size()) return {};
    return slice(image, sections[index].sh_offset, sections[index].sh_size).value_or(Bytes{});
}

std::string_view name_at(Bytes names, uint64_t offset) {
    if (offset >= names.size()) return {};
    auto text = reinterpret_cast<const char*>(names.data()) + offset;
    return {text, strnlen(text, names.size() - offset)};
}

struct Record {
    uint16_t ordinal;
    Parameter parameter;
};

std::optional<Record> parameter_record(uint8_t attribute, Bytes body) {
    auto ordinal = read_at<uint16_t>(body, 4);
    auto offset = read_at<uint16_t>(body, 6);
    auto packed = read_at<uint32_t>(body, 8);
    if (!ordinal || !offset || !packed) return std::nullopt;
    // The first form has the size above an alignment class, a space and a bank; the second has it in the lower
    // half, below flags that sm_120 sets for pointers.
    return Record{*ordinal, {*offset, attribute == attribute_parameter ? *packed >> 18 : *packed & 0xffff}};
}

// Fills in `kernel` from its .nv.info section.
Result<> read_info(Bytes info, Kernel& kernel) {
    std::vector<Record> records;
    for (uint64_t at = 0; at + 4 <= info.size();) {
        auto format = std::to_integer<uint8_t>(info[at]);
        auto attribute = std::to_integer<uint8_t>(info[at + 1]);
        uint16_t value = *read_at<uint16_t>(info, at + 2);
        at += 4;
        if (attribute == attribute_parameter_bytes && format != format_sized) kernel.parameter_bytes = value;
        if (format != format_sized) continue;
        auto body = slice(info, at, value);
        if (!body) return malformed("a record of kernel " + kernel.name + " is cut off");
        at += value;
        if (attribute != attribute_parameter && attribute != attribute_parameter_v2) continue;
        auto record = parameter_record(attribute, *body);
        if (!record || records.size() == parameters_max) return malformed("odd parameters in kernel " + kernel.name);
        records.push_back(*record);
    }
    std::sort(records.begin(), records.end(), [](auto& a, auto& b) { return a.ordinal < b.ordinal; });
    uint64_t end = 0;
    for (const Record& record : records) {
        kernel.parameters.push_back(record.parameter);
        end = std::max<uint64_t>(end, uint64_t{record.parameter.offset} + record.parameter.size);
    }
    if (end > parameters_max) return malformed("kernel " + kernel.name + " has too many bytes of parameters");
    kernel.parameter_bytes = std::max(kernel.parameter_bytes, static_cast<uint32_t>(end));
    return Ok{};
}

}  // namespace

bool is_cubin(Bytes image) {
    return elf_header(image).has_value();
}

Result<uint32_t> architecture(Bytes image) {
    auto header = elf_header(image);
    if (!header) return malformed("not one");
    // CUDA 13 moved the number from the lowest byte to the next, and raised the ABI version to 8 with it.
    bool moved = header->e_ident[EI_ABIVERSION] >= 8;
    return (moved ? header->e_flags >> 8 : header->e_flags) & 0xff;
}

Result<std::vector<Kernel>> kernels(Bytes image) {
    auto header = elf_header(image);
    if (!header) return malformed("not one");
    auto sections = section_table(image, *header);
    if (!sections) return sections.error();
    Bytes names = section_names(image, *header, *sections);
    std::vector<Kernel> found;
    for (const Elf64_Shdr& section : *sections) {
        std::string_view name = name_at(names, section.sh_name);
        if (section.sh_type != section_type_info || !name.starts_with(info_prefix)) continue;
        auto info = slice(image, section.sh_offset, section.sh_size);
        if (!info) return malformed("a section is outside the file");
        Kernel kernel;
        kernel.name = name.substr(info_prefix.size());
        if (auto read = read_info(*info, kernel); !read) return read.error();
        found.push_back(std::move(kernel));
    }
    return found;
}

Result<uint64_t> file_size(const void* image) {
    Elf64_Ehdr header;
    std::memcpy(&header, image, sizeof(header));
    if (!elf_header({static_cast<const std::byte*>(image), sizeof(header)})) return malformed("not one");
    if (header.e_shoff > fatbin::image_bytes_max || header.e_phoff > fatbin::image_bytes_max)
        return malformed("too large");
    uint64_t sections = header.e_shnum;
    if (sections == 0 && header.e_shoff != 0) {  // above 65,279 the count is in the table's first entry
        Elf64_Shdr first;
        std::memcpy(&first, static_cast<const std::byte*>(image) + header.e_shoff, sizeof(first));
        sections = first.sh_size;
    }
    if (sections > sections_max) return malformed("too many sections");
    uint64_t end = std::max<uint64_t>(sizeof(header), header.e_shoff + sections * header.e_shentsize);
    end = std::max<uint64_t>(end, header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize);
    if (end > fatbin::image_bytes_max) return malformed("too large");
    return end;
}

}  // namespace tnr::cubin
