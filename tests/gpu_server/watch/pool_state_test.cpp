// What the watch address tells: its texts, and who is told what.
#include "gpu_server/watch/pool_state.hpp"

#include <nlohmann/json.hpp>

#include "gpu_server/watch/metrics.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::watch;

namespace {

PoolState some_pool() {
    PoolState state;
    state.now_ms = 5000;
    state.nodes = {{"rack-7", "0.1.0", "tcp://10.0.0.1:14900"}};
    state.gpus.resize(3);
    for (int i = 0; i < 3; ++i) {
        auto& gpu = state.gpus[static_cast<size_t>(i)];
        gpu = {"rack-7", i, "h100", "NVIDIA H100", "uuid", i < 2 ? "claimed" : "free"};
        gpu.granted_bytes = 100;
        gpu.memory_bytes = 1000;
        gpu.claim = i < 2 ? i + 1 : 0;
    }
    state.claims.resize(2);
    state.claims[0] = {1, "rack-7", "alice", "alice", "laptop", "h100", {0}};
    state.claims[1] = {2, "rack-7", "bob", "bob", "secret-machine", "h100", {1}};
    state.claims[1].sessions = {{7, "bobs-program", true}};
    state.queue = {{"carol", "carol", "carols", "h100", 1, 1, 1, 2500}};
    state.totals.refusals = {{"usage", 3}};
    return state;
}

bool has_line(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("the metrics say what there is", "[watch]") {
    auto state = some_pool();
    state.totals.claim_s.add(0.004);
    state.totals.claim_s.add(1e9);
    state.nodes[0].name = "a\"b\\c\nd";
    auto text = metrics_text(state);
    INFO(text);
    CHECK(has_line(text, R"(tnr_gpus{node="rack-7",type="h100",state="claimed"} 2)"));
    CHECK(has_line(text, R"(tnr_gpus{node="rack-7",type="h100",state="broken"} 0)"));
    CHECK(has_line(text, R"(tnr_queue_length{type="h100"} 1)"));
    CHECK(has_line(text, "tnr_queue_longest_wait_seconds 2.5"));
    CHECK(has_line(text, R"(tnr_refusals_total{kind="usage"} 3)"));
    CHECK(has_line(text, R"(tnr_claim_latency_seconds_bucket{le="0.0025"} 0)"));
    CHECK(has_line(text, R"(tnr_claim_latency_seconds_bucket{le="0.005"} 1)"));
    CHECK(has_line(text, R"(tnr_claim_latency_seconds_bucket{le="7200"} 1)"));
    CHECK(has_line(text, R"(tnr_claim_latency_seconds_bucket{le="+Inf"} 2)"));
    CHECK(has_line(text, R"(tnr_build_info{node="a\"b\\c d",version="0.1.0"} 1)"));
}

TEST_CASE("a user is told of others which GPUs they hold, and no more", "[watch]") {
    auto told = to_json_for(some_pool(), "alice");
    CHECK(told["claims"].size() == 1);
    CHECK(told["claims"][0]["machine"] == "laptop");
    CHECK(told["gpus"].size() == 3);
    CHECK(told["gpus"][0]["claim"] == 1);
    CHECK(told["gpus"][1]["state"] == "claimed");
    CHECK(told["gpus"][1]["claim"].is_null());
    CHECK(told["queue"].empty());
    CHECK(told["queue_length"] == 1);
    auto text = told.dump();
    for (const char* secret : {"bob", "secret-machine", "carol", "totals"})
        CHECK(text.find(secret) == std::string::npos);
    CHECK(to_json(some_pool()).dump().find("secret-machine") != std::string::npos);
}
