// A machine's whole life, the same at every cloud: made, stopped, made larger, copied, removed, and made again from the
// copy. Whatever a driver promises (provider.hpp) of each step is checked here; a cloud's test adds what only that cloud
// has.
#pragma once

#include "mock_world.hpp"
#include "tests/api_client/world.hpp"

namespace tnr::test {

struct Life {
    Order order;
    std::string larger;                      // the size that it gets
    nlohmann::json left_while_it_runs = {};  // what there is of it, as the mock tells
    nlohmann::json left_of_copy = {};        // what there is when the copy alone is left
    // What else to look at, when the machine runs for the first time; when it has been made larger and is off; when port
    // 8888 is open; of the copy.
    std::function<void(const Machine&)> running = {}, resized = {}, open = {};
    std::function<void(const Snapshot&)> copied = {};
};

inline void live(MockCloud& cloud, Provider& provider, const Life& life) {
    auto made = provider.create(life.order);
    REQUIRE(made);
    const std::string id = made->id;
    CHECK(made->name == life.order.name);
    CHECK(made->state == MachineState::starting);
    CHECK_FALSE(made->offer.empty());
    auto state_now = [&] { return provider.machine(id)->state; };
    const Machine machine = wait_until(provider, id, MachineState::running);
    CHECK_FALSE(machine.address.empty());
    CHECK(*machine.price.machine > 0);
    CHECK(cloud.ask("left") == life.left_while_it_runs);
    REQUIRE(provider.machines()->size() == 1);
    CHECK(provider.machines()->front().id == id);
    CHECK(provider.create(life.order).error().kind == Error::Kind::usage);  // the name is taken
    CHECK(cloud.explained.find("PRIVATE") == std::string::npos);
    if (life.running) life.running(machine);

    REQUIRE(provider.start(id));  // runs already
    REQUIRE(provider.stop(id));
    CHECK(state_now() == MachineState::stopped);
    REQUIRE(provider.stop(id));
    REQUIRE(provider.resize(id, life.larger));
    CHECK(provider.machine(id)->offer == life.larger);
    CHECK(*provider.machine(id)->price.machine > *machine.price.machine);
    if (life.resized) life.resized(*provider.machine(id));
    REQUIRE(provider.start(id));
    wait_until(provider, id, MachineState::running);
    REQUIRE(provider.open_ports(id, {8888}));
    if (life.open) life.open(*provider.machine(id));

    REQUIRE(provider.snapshot(id, "before"));
    auto copies = provider.snapshots();
    for (int looks = 0; looks < 5 && copies && !copies->empty() && !copies->front().ready; ++looks)
        copies = provider.snapshots();
    REQUIRE(copies);
    REQUIRE(copies->size() == 1);
    const Snapshot copy = copies->front();
    CHECK(copy.name == "before");
    CHECK(copy.ready);
    CHECK(copy.created.size() == 20);  // "2026-01-02T03:04:05Z", whatever the cloud writes
    CHECK(copy.created.back() == 'Z');
    if (life.copied) life.copied(copy);

    REQUIRE(provider.destroy(id));
    CHECK(cloud.ask("left") == life.left_of_copy);
    CHECK(provider.machine(id).error().kind == Error::Kind::not_found);
    Order again = life.order;
    again.name = "again";
    again.image = copy.id;
    again.region = "";  // where the copy is
    auto restored = provider.create(again);
    REQUIRE(restored);
    wait_until(provider, restored->id, MachineState::running);
    REQUIRE(provider.destroy(restored->id));
    REQUIRE(provider.destroy(restored->id));  // already gone
    REQUIRE(provider.delete_snapshot(copy.id));
    REQUIRE(provider.delete_snapshot(copy.id));
    CHECK(cloud.ask("left") == nlohmann::json::array());
}

}  // namespace tnr::test
