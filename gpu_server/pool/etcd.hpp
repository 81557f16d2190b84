// etcd 3 through its gRPC-JSON gateway: as much of it as a pool needs. https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/
//
// A Client blocks until etcd has answered, or until its patience ends: it belongs on a thread that may wait. Of several
// members it begins with any, so that a pool's nodes spread over them, and asks the one that answered last; where that does
// not answer, the next.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "api_client/http/http.hpp"
#include "gpu_server/pool/stop_asked.hpp"

namespace tnr::server::etcd {

struct Address {
    std::vector<std::string> urls;  // of the members: "http://10.0.0.1:2379"
    std::string prefix;             // of all our keys: "/tnr/"
    std::string text;               // as the operator wrote it
};
// etcd://HOST:PORT[,HOST:PORT…][/POOL]; etcds:// speaks TLS. Several pools may share one etcd, each under its name.
Result<Address> parse_address(const std::string& text);
bool is_address(const std::string& text);

struct KeyValue {
    std::string key, value;
    int64_t create_revision = 0, mod_revision = 0;
    int64_t lease = 0;
};
struct Listing {
    std::vector<KeyValue> values;
    int64_t revision = 0;
    int64_t count = 0;  // of all keys there, also of those that were not asked for
};

// Keys from `first` on, up to `end` and without it; at most so many of them, unless that is 0.
struct Span {
    std::string first, end;
    int most = 0;
    int64_t changed_after = 0;  // only those that changed after this revision
    bool keys_only = false;     // values stay empty
};
Span all_under(const std::string& prefix);
Span just(const std::string& key);
// Those under the prefix that come after the key `after` (or the prefix itself), and then those before: a place to begin.
std::vector<Span> all_around(const std::string& prefix, const std::string& after, int most);

// All of the operations, if all of the conditions hold; else none. What it reads is read either way, behind the operations.
struct Txn {
    // These return *this, to be chained.
    Txn& if_absent(const std::string& key);
    Txn& if_created_at(const std::string& key, int64_t revision);
    Txn& if_changed_at(const std::string& key, int64_t revision);  // 0: it is not there
    Txn& if_is(const std::string& key, const std::string& value);
    Txn& if_none_newer(const std::string& prefix, int64_t revision);  // under it, all were created by then
    Txn& put(const std::string& key, const std::string& value, int64_t lease = 0);
    Txn& remove(const std::string& key);
    Txn& also(Txn part);  // at the same moment, where its own conditions hold; it has no parts and reads nothing
    Txn& read(const Span& span);

    struct Condition {
        std::string key, target;  // CREATE, MOD or VALUE
        std::string wanted;       // a number, or the value
        std::string end = {};     // of all keys from `key` on, up to this one: LESS; empty: of the key, EQUAL
    };
    struct Operation {
        std::string key;
        std::optional<std::string> value;  // nothing: remove it
        int64_t lease = 0;
    };
    std::vector<Condition> conditions;
    std::vector<Operation> operations;
    std::vector<Txn> parts;
    std::vector<Span> reads;
};
struct Committed {
    bool done = false;
    int64_t revision = 0;
    std::vector<bool> parts;     // which of them were done, in their order
    std::vector<Listing> found;  // what was to be read, in its order
};

struct Event {
    bool removed = false;
    KeyValue pair;
};
using News = std::vector<Event>;

inline constexpr const char* full_hint =
    "the pool's operator makes room: etcdctl defrag, then etcdctl alarm disarm (a larger one: --quota-backend-bytes)";

// etcd takes 128 operations in a transaction, unless told otherwise.
inline constexpr size_t spans_max = 100;

class Client {
public:
    // `stopped`: true ends what waits with an Error. `most_patience_ms`: after a request that was not answered the next waits
    // for twice as long, up to this, and after one that was, for twice what that took: what takes longer than total_ms each
    // time would never be done.
    explicit Client(Address address, http::Limits limits, StopAsked stopped = {}, int most_patience_ms = 0);

    Result<Listing> list(const std::string& prefix);
    // What each of them has, in their order and as of one moment: one request for up to spans_max of them.
    Result<std::vector<Listing>> list(const std::vector<Span>& spans);
    Result<Committed> commit(const Txn& txn);
    Result<int64_t> grant_lease(int64_t ttl_s);
    struct Kept {
        bool there = false;    // the lease
        int64_t revision = 0;  // as far as the member that answered has come
    };
    // From the first one on it asks the leader, which has all leases: every other member would have to ask it, too.
    Result<Kept> keep_alive(int64_t lease);
    // Whether its time is over. keep_alive() of such a lease waits until etcd has ended it, and etcd 3.4 (Debian 12's) does
    // that by a clock that may be set back: hours later, then.
    Result<bool> is_over(int64_t lease);
    Result<> revoke(int64_t lease);
    // What was before this revision is not kept any more: how things are stays.
    Result<> forget_before(int64_t revision);
    // What etcd itself says is wrong with it, such as a full store; empty: nothing.
    Result<std::string> troubles();
    // What changes under the prefix, from this revision on, as it happens. Returns when `told` says false (Ok), when
    // etcd has forgotten that revision (kind not_found: list again), or when the connection ends: after total_ms at the
    // latest, and soon after the member has lost the others (some seconds) or us (http.cpp: ten), and would tell no news.
    Result<> watch(const std::string& prefix, int64_t from, int total_ms, const std::function<bool(const News&)>& told);

private:
    Result<> list_at_once(const std::vector<Span>& spans, size_t from, std::vector<Listing>& all);
    void go_to_leader();
    Result<nlohmann::json> call(const std::string& path, const nlohmann::json& body, bool repeatable);
    Result<http::Response> send(http::Request request, const std::string& path);

    Address address_;
    const int least_patience_ms_, most_patience_ms_;
    int patience_ms_;
    http::Client http_;
    size_t current_;            // of the address's urls
    int64_t leaders_term_ = 0;  // when we came to the leader: each has another
};

// One line of the answer to a watch of `span`; kind not_found when etcd has forgotten. Foreign bytes.
Result<News> parse_news(std::string_view line, const Span& span);

}  // namespace tnr::server::etcd
