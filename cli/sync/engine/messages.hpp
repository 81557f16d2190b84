// What the two ends say. The fields follow in this order; `number` where nothing else is said.
//
//   client → server   hello      which end the server is, from, to, machine, flags
//   sender → receiver entry      parent (index + 1; 0: this is the root), name (text), kind, size, mode, special, time,
//                                leads_to (text). Indices count entries from 0.
//                     rules      folder's index, where the root lies in the folder above that has them (text; empty: they
//                                are the folder's own), text of .gitignore, text of .tnrignore. Later ones have the last word.
//                     list_end   unreadable, ignored
//                     small      index, mode, time, digest (text), content (text): a whole file
//                     begin      index, size, mode, time: a file follows, in pieces and in order
//                     data       content (text)          zeros  count          copy  offset in the old file, count
//                     patch      old offset, last (0, 1), librsync's delta (text)
//                     end        digest (text)
//                     dropped    index: it cannot be sent, whatever has come of it
//                     sign       index, offset: asks for librsync's signature of the old file from there
//   receiver → sender want       index
//                     compare    index, old size, block: wants it as well, and has an old one; its blocks follow
//                     blocks     index, last (0, 1), 64-bit hashes (text)
//                     signature  index, last (0, 1), bytes (text)
//                     would      remove (0: copy, 1), path (text): of a dry run
//                     done       files, unchanged, removed, kept (1: --delete removed nothing, since not all could be read)
//   either            trouble    kind, what (text), hint (text): something was passed over
//                     failed     kind, what (text), hint (text): the whole is over
#pragma once

#include <cstdint>

namespace tnr::sync {

enum class Says : uint8_t {
    hello = 1,
    entry,
    rules,
    list_end,
    small,
    begin,
    data,
    zeros,
    copy,
    patch,
    end,
    dropped,
    sign,
    trouble,
    want,
    compare,
    blocks,
    signature,
    would,
    done,
    failed,
};

// One piece of a file; also the largest file that is sent as `small`.
inline constexpr uint64_t piece_bytes_max = uint64_t{128} << 10;
inline constexpr uint64_t name_bytes_max = 255, path_bytes_max = 4096;

}  // namespace tnr::sync
