// Reads the ELF tables and, per kernel, the section `.nv.info.<kernel>`: a stream of records of which we
// use those that place parameters in the constant bank.
#include "gpu_client/protocol/cubin.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "gpu_client/protocol/elf.hpp"
#include "gpu_client/protocol/fatbin.hpp"

namespace tnr::cubin {
namespace {

constexpr uint32_t section_type_info = 0x70000000;
constexpr std::string_view info_prefix = ".nv.info.";

// Records: {u8 format, u8 attribute, u16 value or length}, then `length` bytes for format_sized.
constexpr uint8_t format_sized = 4;
constexpr uint8_t attribute_parameter = 0x17, attribute_parameter_bytes = 0x19, attribute_parameter_v2 = 0x45;

Error malformed(const std::string& what) {
    return {Error::Kind::usage, "cubin: " + what};
}

std::optional<Elf64_Ehdr> cubin_header(Bytes image) {
    auto header = elf::header(image);
    return header && header->e_machine == elf::machine_cuda ? header : std::nullopt;
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
    return cubin_header(image).has_value();
}

Result<uint32_t> architecture(Bytes image) {
    auto header = cubin_header(image);
    if (!header) return malformed("not one");
    // CUDA 13 moved the number from the lowest byte to the next, and raised the ABI version to 8 with it.
    bool moved = header->e_ident[EI_ABIVERSION] >= 8;
    return (moved ? header->e_flags >> 8 : header->e_flags) & 0xff;
}

Result<std::vector<Kernel>> kernels(Bytes image) {
    if (!is_cubin(image)) return malformed("not one");
    auto sections = elf::sections(image);
    if (!sections) return malformed(sections.error().what);
    std::vector<Kernel> found;
    for (const elf::Section& section : *sections) {
        if (section.type != section_type_info || !section.name.starts_with(info_prefix)) continue;
        if (!section.bytes) return malformed("a section is outside the file");
        Kernel kernel;
        kernel.name = section.name.substr(info_prefix.size());
        if (auto read = read_info(*section.bytes, kernel); !read) return read.error();
        found.push_back(std::move(kernel));
    }
    return found;
}

Result<uint64_t> file_size(const void* image) {
    Elf64_Ehdr header;
    std::memcpy(&header, image, sizeof(header));
    if (!cubin_header({static_cast<const std::byte*>(image), sizeof(header)})) return malformed("not one");
    if (header.e_shoff > fatbin::image_bytes_max || header.e_phoff > fatbin::image_bytes_max)
        return malformed("too large");
    uint64_t sections = header.e_shnum;
    if (sections == 0 && header.e_shoff != 0) {  // above 65,279 the count is in the table's first entry
        Elf64_Shdr first;
        std::memcpy(&first, static_cast<const std::byte*>(image) + header.e_shoff, sizeof(first));
        sections = first.sh_size;
    }
    if (sections > elf::sections_max) return malformed("too many sections");
    uint64_t end = std::max<uint64_t>(sizeof(header), header.e_shoff + sections * header.e_shentsize);
    end = std::max<uint64_t>(end, header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize);
    if (end > fatbin::image_bytes_max) return malformed("too large");
    return end;
}

}  // namespace tnr::cubin
