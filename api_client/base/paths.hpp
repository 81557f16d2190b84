// Where tnr keeps its files: the XDG folders, each with `tnr` below it. What is in them may be secret
// (keys), so we make them for the owner alone; a folder that is already there keeps its mode.
//
// The folder is made when asked for. One that cannot be made (read-only home, a file in its place) is
// still named here: opening a file in it then fails with an error that tells the user which path it was.
#pragma once

#include <filesystem>

namespace tnr {

std::filesystem::path config_dir();  // $XDG_CONFIG_HOME/tnr, else ~/.config/tnr: what the user told us
std::filesystem::path state_dir();   // $XDG_STATE_HOME/tnr, else ~/.local/state/tnr: machines, keys
std::filesystem::path cache_dir();   // $XDG_CACHE_HOME/tnr, else ~/.cache/tnr: may be deleted at any time

}  // namespace tnr
