// What the two words of `tnr sync FROM TO` mean.
//
//   A file      goes into TO when TO is empty, ends with a slash or is a folder; else TO is its new name.
//   A folder    TO becomes its copy: `tnr sync ./src demo:src` twice gives the same as once.
//               With a slash after TO (or TO empty, or "."), it goes inside: `tnr sync ./src demo:` makes ~/src.
//   A folder/   with a slash after it stands for its contents, which go into TO.
#pragma once

#include <string>

#include "api_client/base/result.hpp"

namespace tnr::sync {

struct Endpoint {
    std::string machine;  // empty: this computer
    std::string path;     // "" is the home folder on a machine
};

// "demo:path" is on a machine; a path with a slash before its first colon, or without one, is here.
Endpoint parse_endpoint(const std::string& word);

// The final place of `from` at `to`. `from_is_folder` and `to_is_folder` tell what is there now.
std::string final_place(const std::string& from, bool from_is_folder, const std::string& to, bool to_is_folder);

}  // namespace tnr::sync
