#include "gpu_client/cuda/handles.hpp"

#include <set>
#include "tests/support/catch.hpp"

using namespace tnr::cuda;

namespace {
struct Thing {
    int value = 0;
};
using Things = HandleRegistry<Thing, HandleKind::event>;

uint64_t make(Things& things, int value) {
    return things.create([&](Thing& thing, uint64_t, uint64_t) { thing.value = value; });
}
}  // namespace

TEST_CASE("a handle leads to its object until it is destroyed", "[handles]") {
    auto things = std::make_unique<Things>();
    uint64_t one = make(*things, 1), two = make(*things, 2);
    REQUIRE(things->find(one));
    CHECK(things->find(one)->value == 1);
    CHECK(things->find(two)->value == 2);
    CHECK(things->destroy(one));
    CHECK_FALSE(things->find(one));
    CHECK_FALSE(things->destroy(one));
    CHECK(things->find(two));
}

TEST_CASE("a destroyed handle stays dead when its slot is used again", "[handles]") {
    auto things = std::make_unique<Things>();
    uint64_t old = make(*things, 1);
    things->destroy(old);
    uint64_t again = make(*things, 2);
    CHECK(old != again);
    CHECK_FALSE(things->find(old));
    CHECK(things->find(again)->value == 2);
}

TEST_CASE("made-up handles and handles of another kind are refused", "[handles]") {
    auto things = std::make_unique<Things>();
    auto others = std::make_unique<HandleRegistry<Thing, HandleKind::stream>>();
    uint64_t handle = make(*things, 1);
    uint64_t other = others->create([](Thing&, uint64_t, uint64_t) {});
    CHECK_FALSE(things->find(other));
    CHECK_FALSE(others->find(handle));
    for (uint64_t made_up : {uint64_t{0}, uint64_t{1}, uint64_t{2}, handle + 1, handle + 16, ~uint64_t{0}})
        CHECK_FALSE(things->find(made_up));
}

TEST_CASE("many handles are all different and all found", "[handles]") {
    auto things = std::make_unique<Things>();
    std::set<uint64_t> handles;
    for (int i = 0; i < 5000; ++i) handles.insert(make(*things, i));
    CHECK(handles.size() == 5000);
    size_t found = 0;
    things->each([&](Thing&, uint64_t handle) { found += handles.count(handle); });
    CHECK(found == 5000);
}
