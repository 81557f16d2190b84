// The pool over its control messages, where its server says what no server of ours would.
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <zmq.hpp>

#include "cli/pool.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using Json = nlohmann::json;

namespace {

// What a terminal would obey, as ui::plain shows it.
constexpr const char* obeyed = "a\033[2J\033[31mb\nc\u009bd\u202e\r";
constexpr const char* shown = "a\\033[2J\\033[31mb\\012c\\302\\233d\\342\\200\\256\\015";

// Answers each op as it is told.
class Liar {
public:
    Liar() {
        socket_.bind("tcp://127.0.0.1:*");
        address = socket_.get(zmq::sockopt::last_endpoint);
        thread_ = std::thread([this] { answer_all(); });
    }
    ~Liar() { (void)all_asked(); }
    Liar(const Liar&) = delete;
    Liar& operator=(const Liar&) = delete;

    std::unique_ptr<cli::Pool> pool() const {
        auto pool = cli::connect_pool({address, {}});
        REQUIRE(pool);
        return std::move(*pool);
    }
    std::string address;
    std::map<std::string, Json> answers;  // by op; nobody is asked before they are there
    // From then on nobody is answered.
    const std::vector<Json>& all_asked() {
        over_ = true;
        if (thread_.joinable()) thread_.join();
        return asked_;
    }

private:
    void answer_all() {
        socket_.set(zmq::sockopt::rcvtimeo, 50);
        while (!over_) {
            zmq::message_t sender, text;
            if (!socket_.recv(sender) || !socket_.recv(text)) continue;
            auto request = Json::parse(text.to_string());
            Json answer = answers[request.at("op")];
            asked_.push_back(request);
            if (answer.is_array()) {  // one page after the other
                Json pages = std::exchange(answer, answer.at(0));
                pages.erase(0);
                answers[request.at("op")] = pages;
            }
            answer["id"] = request.at("id");
            socket_.send(sender, zmq::send_flags::sndmore);
            socket_.send(zmq::buffer(answer.dump()), zmq::send_flags::none);
        }
    }
    zmq::context_t context_;
    zmq::socket_t socket_{context_, ZMQ_ROUTER};
    std::atomic<bool> over_{false};
    std::vector<Json> asked_;  // the thread's
    std::thread thread_;
};

Json node_at(const std::string& address, const std::string& name) {
    return {{"name", name}, {"address", address}, {"server_key", ""}};
}

}  // namespace

TEST_CASE("what a pool calls things is shown and not obeyed, in what it tells and in what it refuses", "[cli][pool]") {
    Liar liar;
    liar.answers["types"] = {{"types", {{{"name", obeyed}, {"total", 1}, {"free", 1}, {"memory_bytes", -1e300}}}}};
    liar.answers["nodes"] = {{"nodes", Json::array()}, {"asked", "a"}, {"gone", {obeyed}}};
    liar.answers["ledger"] = {{"claims", Json::array()}, {"next", nullptr}};
    liar.answers["prices"] = {{"prices", Json::array()}, {"next", nullptr}};
    liar.answers["hello"] = {{"error", {{"kind", "auth"}, {"what", obeyed}, {"hint", obeyed}}}};
    auto pool = liar.pool();
    auto types = pool->types();
    REQUIRE(types);
    CHECK(types->front().name == shown);
    CHECK(types->front().memory_bytes == 0);
    auto books = pool->books(0, false, {});
    REQUIRE(books);
    CHECK(books->silent == std::vector<std::string>{shown});
    auto hello = pool->hello();
    REQUIRE_FALSE(hello);
    CHECK(hello.error().what.find_first_of("\033\r") == std::string::npos);
    CHECK(hello.error().hint.find_first_of("\033\r") == std::string::npos);
}

TEST_CASE("a claim that runs on one page of the ledger is in no sum of the next one", "[cli][pool]") {
    Liar liar;
    auto claim = [](int id, int from, int to, bool ended) {
        return Json{{"id", id},       {"machine", "demo"}, {"gpu", "h100"},   {"count", 1}, {"from", from}, {"to", to},
                    {"ended", ended}, {"bytes_up", 1},     {"bytes_down", 2}, {"lines", 3}, {"held_ms", 7}};
    };
    auto page = [](std::vector<Json> claims, const Json& next) { return Json{{"claims", claims}, {"next", next}}; };
    liar.answers["nodes"] = {{"nodes", Json::array()}, {"asked", "a"}};
    liar.answers["prices"] = {{"prices", Json::array()}, {"next", nullptr}};
    liar.answers["ledger"] = {page({claim(1, 0, 10, true)}, {{"since", 10}, {"behind", 1}}),
                              page({claim(2, 0, 20, false)}, {{"since", 20}, {"behind", 2}}),
                              page({claim(2, 0, 30, true)}, nullptr)};
    auto books = liar.pool()->books(0, false, {5, 9});
    REQUIRE(books);
    std::vector<bool> sums;
    for (const auto& request : liar.all_asked())
        if (request.at("op") == "ledger") {
            sums.push_back(request.value("sums", false));
            CHECK(request.at("borders") == Json{0, 5'000, 9'000});
        }
    CHECK(sums == std::vector<bool>{true, true, false});
    REQUIRE(books->uses.size() == 2);
    CHECK(books->uses[0].claims == 3);
    CHECK(books->uses[1].to_ms == 30);
    CHECK(books->uses[0].held_ms == 7);
}

// With one connection for all, threads that ask at the same time broke the heap.
TEST_CASE("nodes that all say to be at one place are asked each over a connection of its own", "[cli][pool]") {
    Liar liar;
    Json nodes = Json::array();
    for (int i = 0; i < 24; ++i) nodes.push_back(node_at(liar.address, "n" + std::to_string(i)));
    liar.answers["nodes"] = {{"nodes", nodes}, {"asked", "another"}};
    liar.answers["ledger"] = {{"claims", Json::array()}, {"next", nullptr}};
    liar.answers["prices"] = {{"prices", Json::array()}, {"next", nullptr}};
    auto books = liar.pool()->books(0, false, {});
    REQUIRE(books);
    CHECK(books->silent.empty());
}
