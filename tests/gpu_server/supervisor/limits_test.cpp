// Whoever adds a limit on what a peer may make us hold shows it: the list that `status --limits` prints is held against the
// headers' text. README.md has the rule: whatever anybody can make us hold has a limit per peer.
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "gpu_server/supervisor/limit_list.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::server;

namespace {

std::string text_of(const std::string& path) {
    std::ifstream file(TNR_SOURCE_FOLDER "/" + path);
    REQUIRE(file.good());
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// Limits, as they are named where they are set: "…_max", "…_burst", and whatever is per somebody.
std::set<std::string> limits_in(const std::string& header) {
    const auto text = text_of(header);
    const std::regex limit(
        R"(\b(\w+(_max|_burst)|\w+_per_(key|account|source|peer|owner|user|claim|session)\w*)\b *=(?!=))");
    std::set<std::string> names;
    for (std::sregex_iterator found(text.begin(), text.end(), limit), none; found != none; ++found)
        names.insert((*found)[1]);
    return names;
}

// No peer's: what they bound, no peer can make more of; or they are an operator's.
const std::set<std::string> nobodys{
    // of broken GPUs, drivers and this host
    "strikes_max", "out_of_order_max", "host_trouble_pause_max", "wipe_missing_bytes_max", "reserve_bytes_max",
    // of what all peers together have; each has a limit of its own, which is shown
    "arriving_image_bytes_max", "arriving_images_max", "image_writers_max", "nodes_remembered_max", "sent_max",
    "refusals_looking_max", "look_at_all_pause_max", "threads_of_all_max",
    // of a message, which is split; of a message that no peer sends
    "ledger_lines_per_answer", "ledger_lines_per_sum", "prices_per_answer", "worker_message_bytes_max",
    "audit_file_bytes_max", "audit_files_max", "audit_lines_max", "report_claims_max", "report_users_max",
    // of what we send: a client's own, a sender's, and what a node asks of etcd and of others
    "inline_copy_bytes_max", "kept_batches_max", "lane_failures_max", "spans_max", "fellows_asked_max",
    "fellows_gone_max", "fellow_lines_max",
    // of a control message wherever one is read; who sends them to a server meets limits of its own before
    "control_bytes_max",
    // a number's range, so that sums stay numbers
    "claim_use_max", "bytes_moved_per_ms_max", "report_amount_max",
    // what an operator may ask for; and what nobody has used for long
    "token_lasts_max", "key_overlap_max", "priority_max", "device_memory_max", "images_unused_max",
    "host_bytes_per_gpu_min"};

}  // namespace

TEST_CASE("every limit that a peer can meet is in the list that status prints", "[limits]") {
    const auto list = text_of("gpu_server/supervisor/limit_list.cpp");
    for (auto* header : {"gpu_server/supervisor/limits.hpp", "gpu_server/worker/limits.hpp",
                         "gpu_server/watch/limits.hpp", "gpu_server/pool/audit.hpp", "gpu_server/pool/etcd.hpp",
                         "gpu_server/pool/store.hpp", "gpu_client/protocol/limits.hpp"}) {
        const auto names = limits_in(header);
        REQUIRE_FALSE(names.empty());
        for (auto& name : names) {
            INFO(header << ": " << name << " is neither in limit_list.cpp nor nobody's");
            CHECK((std::regex_search(list, std::regex("\\b" + name + "\\b")) || nobodys.count(name) > 0));
        }
    }
    for (auto& line : limit_list(uint64_t{4} << 30)) {
        INFO(line.what << ", of " << line.of);
        CHECK((!line.what.empty() && !line.of.empty() && !line.most.empty() && !line.beyond.empty()));
    }
}
