// Threads of the workers of one claim.
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/worker/limits.hpp"
#include "paper_world.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

namespace {

class Busy : public PaperNode {
public:
    Busy() : PaperNode(plain()) { finds_its_gpu(); }
    // One more program of the machine's; the threads that its worker may have.
    size_t begins() {
        Caller caller{Caller::Role::machine, "alice", "m", "key"};
        claims_.open_session(caller, {"h100", 1}, {1, "p", std::to_string(++programs_)}, [](auto&&) {});
        takes_its_course();
        return workers_.all.back()->threads;
    }
    // The one that began last.
    void ends() {
        workers_.exits(*workers_.all.back(), "its program has ended");
        takes_its_course();
    }

private:
    int programs_ = 0;
};

}  // namespace

TEST_CASE("programs of one machine share their threads, and the last one has enough to run", "[threads]") {
    Busy node;
    std::vector<size_t> shares;
    for (size_t i = 0; i < sessions_per_claim_max; ++i) shares.push_back(node.begins());
    CHECK(shares.front() == worker::threads_max);
    CHECK(std::is_sorted(shares.rbegin(), shares.rend()));
    CHECK(shares.back() == threads_per_session_min);
    size_t all = 0;
    for (auto share : shares) all += share;
    CHECK(all <= threads_per_claimed_gpu_max + sessions_per_claim_max * threads_per_session_min);
}

TEST_CASE("what a program that has ended had of them is the next one's", "[threads]") {
    Busy node;
    node.begins();
    const auto second = node.begins();
    node.ends();
    CHECK(node.begins() == second);
}
