// What NVML tells, as it travels: also between a client and a server of different ages.
#include "gpu_client/protocol/gpu_facts.hpp"

#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

GpuSnapshot a_pair() {
    GpuSnapshot snapshot;
    for (const char* uuid : {"00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"}) {
        GpuFacts gpu;
        gpu.name = "NVIDIA H100";
        gpu.uuid = uuid;
        gpu.values[gpu_value::temperature_c] = 40;
        snapshot.devices.push_back(gpu);
    }
    snapshot.devices[0].peers[snapshot.devices[1].uuid] = 3;
    snapshot.devices[0].links[5] = snapshot.devices[1].uuid;
    return snapshot;
}

}  // namespace

TEST_CASE("what NVML tells arrives as it was sent", "[facts]") {
    auto received = snapshot_from_json(to_json(a_pair()));
    REQUIRE(received);
    CHECK(received->devices[0].peers == a_pair().devices[0].peers);
    CHECK(received->devices[0].links == a_pair().devices[0].links);
    CHECK(received->devices[1].values == a_pair().devices[1].values);
}

TEST_CASE("names that a pool tells of GPUs and processes control no terminal", "[facts]") {
    auto hostile = a_pair();
    hostile.devices[0].name = hostile.devices[0].driver_version = "\033[2JH100\r";
    hostile.processes.push_back({0, 1, "py\nthon\a", 1});
    auto received = snapshot_from_json(to_json(hostile));
    REQUIRE(received);
    CHECK(received->devices[0].name == "?[2JH100?");
    CHECK(received->devices[0].driver_version == "?[2JH100?");
    CHECK(received->processes[0].name == "py?thon?");
}

TEST_CASE("a server of before peers and links were told has none", "[facts]") {
    auto older = to_json(a_pair());
    for (auto& device : older["devices"]) {
        device.erase("peers");
        device.erase("links");
    }
    auto received = snapshot_from_json(older);
    REQUIRE(received);
    CHECK(received->devices[0].peers.empty());
    CHECK(received->devices[0].links.empty());
}

TEST_CASE("what is there and is no such thing is refused", "[facts]") {
    for (const char* field : {"peers", "links"}) {
        auto wrong = to_json(a_pair());
        wrong["devices"][0][field] = 7;
        CHECK_FALSE(snapshot_from_json(wrong));
    }
    CHECK_FALSE(snapshot_from_json(json::array()));
}
