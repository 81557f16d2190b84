// Instructions of hardware that is not emulated. Libraries carry them beside what runs on any GPU, and most programs never
// come to them: code that has them loads, and a warp that comes to one faults.
#include <algorithm>
#include <array>
#include <utility>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {
namespace {

// Of multimem and wgmma what decode_multimem() and decode_warpgroup() leave.
constexpr std::array<std::string_view, 3> families = {"multimem", "wgmma", "tcgen05"};

void absent(Warp& w, const Instr& i) {
    fault(w, Outcome::illegal_instruction, static_cast<uint32_t>(std::countr_zero(w.active)),
          w.program->absent[i.table] + ", which the emulated GPU does not have");
}

}  // namespace

void emit_absent(Decoder& d, std::string name) {
    auto& names = d.program().absent;
    names.push_back(std::move(name));
    d.emit(absent).table = static_cast<uint32_t>(names.size() - 1);
}

bool decode_absent(Decoder& d) {
    if (std::find(families.begin(), families.end(), d.inst().name) == families.end()) return false;
    for (auto modifier : d.inst().modifiers) d.take(modifier);
    emit_absent(d, d.full_name());
    return true;
}

}  // namespace tnr::ptx
