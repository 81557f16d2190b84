// GPU code in what a host's compiler makes: `nvcc -dc` puts fat binaries into sections of an object, `ar` objects into a
// library. Facts: the sections' names and their alignment as nvcc 11.8 to 13.0 write them; ar(5).
#include <charconv>

#include "gpu_client/protocol/elf.hpp"
#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/emulated_gpu/driver/code_units.hpp"

namespace tnr::emulated {
namespace {

// Of code that is linked once more, and of code that was whole when the host's compiler got it.
constexpr std::string_view code_sections[] = {"__nv_relfatbin", ".nv_fatbin"};
constexpr uint64_t container_alignment = 8;

constexpr std::string_view archive_magic = "!<arch>\n", member_end = "`\n";
struct MemberHeader {
    char name[16], time[12], user[6], group[6], mode[8], size[10], end[2];
};
static_assert(sizeof(MemberHeader) == 60);

// One container after the other, with zeros between. What has nothing for this GPU is left out: whoever needs it is told
// when linking finds a name nowhere.
CUresult add_units_of_section(Bytes section, const std::string& name, CodeUnits& units, std::string& error) {
    for (uint64_t at = 0; auto word = read_at<uint32_t>(section, at);) {
        if (*word == 0) {
            at += container_alignment;
            continue;
        }
        auto container = fatbin::first_container(section.subspan(at));
        if (!container) return error = container.error().what, CUDA_ERROR_INVALID_IMAGE;
        auto added = add_units_of_container(*container, name, units, error);
        if (added != CUDA_SUCCESS && added != CUDA_ERROR_NO_BINARY_FOR_GPU) return added;
        at += (container->size() + container_alignment - 1) / container_alignment * container_alignment;
    }
    return CUDA_SUCCESS;
}

CUresult add_member(Bytes member, const std::string& name, CodeUnits& units, std::string& error) {
    if (!elf::header(member)) return CUDA_SUCCESS;  // an index, or a file that has no code
    auto sections = elf::sections(member);
    if (!sections) return error = name + ": " + sections.error().what, CUDA_ERROR_INVALID_IMAGE;
    for (auto& section : *sections)
        for (auto wanted : code_sections)
            if (section.name == wanted && section.bytes)
                if (CUresult result = add_units_of_section(*section.bytes, name, units, error)) return result;
    return CUDA_SUCCESS;
}

}  // namespace

CUresult add_units_of_object(Bytes object, const std::string& name, CodeUnits& units, std::string& error) {
    if (!elf::header(object)) return error = name + " is no object file", CUDA_ERROR_INVALID_IMAGE;
    const size_t before = units.size();
    if (CUresult result = add_member(object, name, units, error)) return result;
    if (units.size() > before) return CUDA_SUCCESS;
    if (error.empty()) error = name + " has no GPU code";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult add_units_of_archive(Bytes archive, const std::string& name, CodeUnits& units, std::string& error) {
    const auto malformed = [&] {
        error = name + " is no library of objects (ar)";
        return CUDA_ERROR_INVALID_IMAGE;
    };
    auto magic = slice(archive, 0, archive_magic.size());
    if (!magic || std::memcmp(magic->data(), archive_magic.data(), archive_magic.size()) != 0) return malformed();
    for (uint64_t at = archive_magic.size(); at < archive.size();) {
        auto header = read_at<MemberHeader>(archive, at);
        if (!header || std::string_view(header->end, 2) != member_end) return malformed();
        uint64_t bytes = 0;
        auto [end, wrong] = std::from_chars(header->size, std::end(header->size), bytes);
        auto member = wrong == std::errc() ? slice(archive, at + sizeof *header, bytes) : std::nullopt;
        if (!member) return malformed();
        if (CUresult result = add_member(*member, name, units, error)) return result;
        at += sizeof *header + bytes + bytes % 2;
    }
    error.clear();  // what was left out may not be needed: nvcc's libcudadevrt is machine code, and built in here
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
