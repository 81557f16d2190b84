// Who may open a lane of somebody's session.
#include <atomic>

#include "gpu_client/protocol/ops.hpp"
#include "gpu_server/pool/zap.hpp"
#include "tests/gpu_client/protocol/kept.hpp"
#include "tests/gpu_client/protocol/raw_client.hpp"

using namespace tnr;
using namespace tnr::test;

TEST_CASE("a stranger gets no lane, whatever it calls itself", "[pool]") {
    constexpr size_t lanes = 2;
    auto server_keys = wire::make_key_pair(), client_keys = wire::make_key_pair(), others = wire::make_key_pair();
    zmq::context_t context(1 + lanes);
    std::atomic<int> refused{0};
    auto zap = server::Zap::start(context, [&](const server::Knock& knock) -> std::optional<std::string> {
        if (knock.public_key == client_keys.public_key) return "client";
        ++refused;
        return std::nullopt;
    });
    REQUIRE(zap);
    uint16_t port = 0;
    auto served = wire::Channel::serve(context, listening(port), server_keys, "session", lanes);
    REQUIRE(served);
    wire::Link server(std::move(*served));

    RawClient stranger(context, port, "session/1/1", {server_keys.public_key, others});
    stranger.say(0, wire::op_lane, 1);
    stranger.say(1, 1, 666);
    RawClient plain(context, port, "session/1/2");
    plain.say(0, wire::op_lane, 1);
    for (wire::Batch batch; refused == 0;)
        CHECK(server.receive(batch, std::chrono::milliseconds(10)) == wire::Link::Event::timeout);
    CHECK(server.lanes_up() == 0);

    auto client = dialled(context, port, {server_keys.public_key, client_keys}, lanes);
    Kept kept(*client);
    auto frame = numbered(1);
    client->send(frame, {});
    CHECK(number_in(next_batch(server)) == 1);
    for (wire::Batch batch; server.lanes_up() < lanes;) {
        auto event = server.receive(batch, std::chrono::milliseconds(10));
        REQUIRE((event == wire::Link::Event::timeout || event == wire::Link::Event::receipt));
    }
    CHECK(client->lanes_up() == lanes);
}
