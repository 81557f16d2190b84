// The page for people: page.html, embedded as it is.
#pragma once

#include <memory>
#include <string>

namespace tnr::watch {

std::shared_ptr<const std::string> page();

}  // namespace tnr::watch
