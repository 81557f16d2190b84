// What requests are signed with.
#pragma once

#include <string>

namespace tnr::aws {

struct Keys {
    std::string id = {}, secret = {}, token = {};  // token: of keys that expire; else empty
    std::string region = {};                       // where this machine is, if the keys are its own; else empty
};

}  // namespace tnr::aws
