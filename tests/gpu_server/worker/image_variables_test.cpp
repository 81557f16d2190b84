// What is counted of a code image before a driver sees it.
#include "gpu_server/worker/image_variables.hpp"

#include <elf.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gpu_client/protocol/bundle.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using worker::variable_bytes;
using worker::variable_bytes_of_ptx;

namespace {

std::span<const std::byte> image_of(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

std::string cubin_with(const std::vector<std::pair<std::string, uint64_t>>& variables) {
    std::string names(1, '\0');
    std::vector<Elf64_Shdr> table(1);
    for (auto& [name, size] : variables) {
        Elf64_Shdr entry{};
        entry.sh_name = static_cast<uint32_t>(names.size());
        entry.sh_type = SHT_NOBITS;
        entry.sh_size = size;
        table.push_back(entry);
        names += name + '\0';
    }
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = 190;
    header.e_shoff = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(table.size() + 1);
    header.e_shstrndx = static_cast<uint16_t>(table.size());
    Elf64_Shdr strings{};
    strings.sh_type = SHT_STRTAB;
    strings.sh_offset = sizeof header + (table.size() + 1) * sizeof strings;
    strings.sh_size = names.size();
    table.push_back(strings);
    std::string file(reinterpret_cast<const char*>(&header), sizeof header);
    file.append(reinterpret_cast<const char*>(table.data()), table.size() * sizeof strings);
    return file + names;
}

void append_entry(std::string& container, uint16_t kind, const std::string& payload) {
    char entry[64] = {};
    const uint32_t header_bytes = sizeof entry;
    const uint64_t bytes = payload.size();
    std::memcpy(entry, &kind, 2);
    std::memcpy(entry + 4, &header_bytes, 4);
    std::memcpy(entry + 8, &bytes, 8);
    container.append(entry, sizeof entry).append(payload);
}

std::string container_of(const std::vector<std::string>& texts) {
    std::string entries;
    for (auto text : texts) {
        text.resize((text.size() + 8) / 8 * 8);
        append_entry(entries, 1, text);
    }
    char header[16] = {};
    const uint32_t magic = 0xBA55ED50, versions = 16u << 16 | 1;
    const uint64_t bytes = entries.size();
    std::memcpy(header, &magic, 4);
    std::memcpy(header + 4, &versions, 4);
    std::memcpy(header + 8, &bytes, 8);
    return std::string(header, sizeof header) + entries;
}

constexpr auto too_much = std::numeric_limits<uint64_t>::max();

}  // namespace

TEST_CASE("variables of PTX are counted where they are declared, and nothing else is", "[image_variables]") {
    CHECK(variable_bytes_of_ptx(".global .b8 a[100];") == 100);
    CHECK(variable_bytes_of_ptx(".visible .global .align 8 .f64 a[10][20], b;") == 200 * 8 + 7 + 8 + 7);
    CHECK(variable_bytes_of_ptx(".const .v4 .u32 a;") == 16 + 15);
    CHECK(variable_bytes_of_ptx(".const[3] .b8 a[7];") == 7);
    CHECK(variable_bytes_of_ptx(".global .b8 a[] = {1, 2, {3, 4}};") == 4);
    CHECK(variable_bytes_of_ptx(".global .b8 a[3] = {1, 2, 3}, b[5];") == 8);
    CHECK(variable_bytes_of_ptx(".global .u64 p = generic(a)+8; .global .b8 c;") == 8 + 7 + 1);
    CHECK(variable_bytes_of_ptx(".global .attribute(.managed) .b8 a[6];") == 6);
    CHECK(variable_bytes_of_ptx(".global .attribute(.unified(19, 95), .managed) .b8 a[6], b;") == 7);
    CHECK(!variable_bytes_of_ptx(".global .attribute(.unified(19, 95) .b8 a[6];"));
    CHECK(variable_bytes_of_ptx(".global .b8 a<4>, b;") == 5);
    CHECK(variable_bytes_of_ptx(".extern .global .b8 a[9]; .global .b8 b[2];") == 2);
    CHECK(variable_bytes_of_ptx("// .global .b8 a[9];\n/* .global .b8 a[9]; */ .global .texref t;") == 8 + 7);
    CHECK(variable_bytes_of_ptx(".entry k(.param .u64 .ptr .global .align 16 p) { .reg .b64 %a; ld.global.u32 %r, [%a];"
                                " st.global [%a], %r; .global .b8 inside[5]; }") == 5);
    CHECK(variable_bytes_of_ptx(".file 1 \"a .global .b8 x[7]; b\"\n.global/**/.b8 a[3];") == 3);
    CHECK(variable_bytes_of_ptx("") == 0);
    CHECK(variable_bytes_of_ptx(std::string_view(".global .b8 a[3];\0.global .b8 b[5];", 35)) == 3);
}

TEST_CASE("sizes of variables of PTX may be expressions", "[image_variables]") {
    auto bytes = [](const std::string& size) { return variable_bytes_of_ptx(".global .b8 a[" + size + "];"); };
    CHECK(bytes("0x10U") == 16);
    CHECK(bytes("010") == 8);
    CHECK(bytes("0b101") == 5);
    CHECK(bytes("2+3*4-1") == 13);
    CHECK(bytes("(2+3)*4 % 7") == 6);
    CHECK(bytes("1 << 4 + 1") == 32);
    CHECK(bytes("-(-5)") == 5);
    CHECK(bytes("7 & 6 ^ 1 | 8") == 15);
    CHECK(bytes("1 << 70") == too_much);
    CHECK(bytes("4294967296 * 4294967296 * 2") == too_much);
    CHECK(bytes("0xffffffffffffffff][2") == too_much);
    for (auto nonsense :
         {"", "x", "1 +", "1 / 0", "(1", "1)", "1 2", "1 <> 2", "99999999999999999999", "0x", "sizeof(a)"}) {
        CAPTURE(nonsense);
        if (*nonsense) CHECK(!bytes(nonsense));
    }
    CHECK(!bytes(std::string(1'000'000, '(')));
    CHECK(!bytes(std::string(1'000'000, '+') + "1"));
    CHECK(!bytes(std::string(1'000'000, '-') + "1"));
}

TEST_CASE("variables of a cubin are what its sections say", "[image_variables]") {
    const auto cubin = cubin_with({{".nv.global", 1 << 20},
                                   {".nv.global.init", 100},
                                   {".nv.constant3", 64},
                                   {".nv.constant0.kernel", 4096},
                                   {".text.kernel", 8192}});
    CHECK(variable_bytes(image_of(cubin)) == (1 << 20) + 164);
    CHECK(variable_bytes(image_of(cubin_with({{".nv.global", too_much}, {".nv.global", 5}}))) == too_much);
    for (size_t length = 0; length < cubin.size(); length += 7) (void)variable_bytes(image_of(cubin.substr(0, length)));
    CHECK(!variable_bytes(image_of(cubin.substr(0, cubin.size() / 2))));
}

TEST_CASE("of a fat binary's entries the largest counts, and of a bundle what may be linked", "[image_variables]") {
    const auto small = container_of({".global .b8 a[10];", ".global .b8 a[30];", ".global .b8 a[20];"});
    const auto large = container_of({".global .b8 a[100];"});
    CHECK(variable_bytes(image_of(small)) == 30);
    const std::span<const std::byte> containers[] = {image_of(small), image_of(large), image_of(small)};
    const auto bundle = fatbin::bundle(containers);
    CHECK(variable_bytes(bundle) == 130);
    CHECK(!variable_bytes(std::span(bundle).first(bundle.size() - 9)));
    CHECK(!variable_bytes(image_of(container_of({".global .b8 a[x];"}))));
    CHECK(!variable_bytes(image_of("neither")));
}
