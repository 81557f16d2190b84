// A fuzz input read as what a client sends in one session: records with mostly valid ops, whose payloads mix the input's
// own bytes with what a client could know, small numbers of handles and addresses in the session's range.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gpu_client/protocol/link.hpp"

namespace tnr::fuzz {

struct SentBatch {
    wire::Bytes frame;
    wire::Frames bulk;
    std::vector<std::pair<uint64_t, uint16_t>> calls;  // number and op of each record that wants a reply
    bool says_goodbye = false;
};

// `range`: where the session's addresses begin. The layout of the input is told in session_seeds.py, which writes it.
std::vector<SentBatch> read_session(std::span<const uint8_t> input, uint64_t range);

}  // namespace tnr::fuzz
