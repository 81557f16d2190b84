// The sections of an ELF file of 64 bits: a cubin is one, and host objects carry GPU code in some of theirs.
//
// Takes untrusted bytes and never reads outside the span. Views point into the caller's bytes and live as long as they.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_client/protocol/read_at.hpp"

namespace tnr::elf {

inline constexpr uint16_t machine_cuda = 190;
// More than any file seen: cuBLASLt's largest cubins have about 30,000 sections.
inline constexpr uint64_t sections_max = 1 << 20;

struct Section {
    std::string_view name;
    uint32_t type = SHT_NULL;
    std::optional<Bytes> bytes;  // none: it is outside the file
    uint64_t size = 0;           // as it says; of SHT_NOBITS it has in memory alone
};

// None: this is no ELF file of 64 bits.
std::optional<Elf64_Ehdr> header(Bytes file);

Result<std::vector<Section>> sections(Bytes file);

}  // namespace tnr::elf
