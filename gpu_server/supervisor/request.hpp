// A control request as the supervisor understands it: every field checked, nothing of the peer's JSON left.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::server {

enum class Op {
    hello,
    types,
    describe,
    session,
    nvml,
    enroll_machine,
    forget_machine,
    claims,
    release,
    ledger,
    prices,
    queue,
    redeem,
    nodes,
    pool
};

// Fields that an operation does not have are left empty. See gpu_client/protocol/control.hpp for the table.
struct Request {
    uint64_t id = 0;
    Op op = Op::hello;
    std::string gpu;
    int count = 1;
    int64_t wait_s = 0;
    int place = 0;  // in the queue, as it was told last
    int hops = -1;  // nodes that have sent it on already; -1: the client knows of no other nodes
    int pid = 0;
    std::string process;
    std::string nonce;
    bool doors = false;  // it can come to a worker through the server's one port
    std::string name;
    std::string public_key;
    int64_t since = 0;      // milliseconds since 1970
    int64_t behind = 0;     // the last line of the page before
    bool everyone = false;  // an operator asks for all users'
    bool sums = false;      // lines that are alike as one, but for what these borders part
    std::vector<int64_t> borders;
    bool day = false;      // and for the last day
    std::string pool_key;  // by which the sender knows the server
    std::string machine;   // whose claim it is, from peers without a machine key: open pools, `tnr run` of an account
};

// "session": as requests spell it.
std::string op_name(Op op);

// Foreign bytes. Never throws. On an Error `id` still says whom to answer, when that much could be read.
Result<Request> parse_request(const void* data, size_t size, uint64_t& id);

// {"id", …fields} and {"id", "error"}, as text.
std::string answer_text(uint64_t id, nlohmann::json fields);
std::string error_text(uint64_t id, const Error& error);

// Letters, digits, '-', '_' and '.', not empty: what accounts and machines may be called.
bool is_name(const std::string& text);

}  // namespace tnr::server
