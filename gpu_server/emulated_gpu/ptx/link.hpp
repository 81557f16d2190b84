// Translation units to one: names resolved across them as a linker does. A module loaded from one text goes this way,
// too; then there is only its own `.extern` to be resolved.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_server/emulated_gpu/ptx/ast.hpp"

namespace tnr::ptx {

// An Error of kind not_found when the units do not fit together: something is defined twice, nowhere, or otherwise than
// it is declared. It names the symbol and the units. `names` has one for each unit; their texts are still referred to.
Result<ast::Unit> link(std::vector<ast::Unit> units, const std::vector<std::string_view>& names);

}  // namespace tnr::ptx
