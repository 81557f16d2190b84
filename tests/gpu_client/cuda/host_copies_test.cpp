// The host copies of a graph: finding those of the same rows, and whether any overlap.
#include "gpu_client/cuda/host_copies.hpp"

#include <random>

#include "tests/support/catch.hpp"

using namespace tnr::cuda;

namespace {

std::byte* const memory = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);

// Mirrors of several copies are told apart by their addresses.
std::shared_ptr<const uint64_t> another_mirror() {
    static uint64_t last = 0;
    return std::make_shared<uint64_t>(++last);
}

HostCopies::Copy make_copy(uint64_t at, uint64_t bytes, bool to_device,
                           const std::shared_ptr<const uint64_t>& mirror = another_mirror()) {
    auto copy = std::make_shared<HostCopy>();
    copy->to_device = to_device;
    copy->host = {memory + at, bytes, 1, bytes};
    copy->mirror = mirror;
    return copy;
}

bool any_overlap_by_looking_at_all(const HostCopies& some, const HostCopies& others) {
    for (auto& one : some)
        for (auto& other : others)
            if (one->mirror != other->mirror && !(one->to_device && other->to_device) &&
                overlap(one->host, other->host))
                return true;
    return false;
}

// Few enough, and far enough apart, for either answer.
HostCopies random_copies(std::mt19937& random) {
    HostCopies copies;
    for (unsigned i = random() % 6; i > 0; --i) {
        auto copy = make_copy(random() % 60, 1 + random() % 12, random() % 2 == 0);
        if (auto same = copies.find_same(*copy)) copy->mirror = same->mirror;
        copies.add(copy);
    }
    return copies;
}

}  // namespace

TEST_CASE("host copies of the same rows find each other, also when others have gone", "[graphs]") {
    HostCopies copies;
    auto first = make_copy(0, 16, true), second = make_copy(0, 16, false), longer = make_copy(0, 32, true);
    for (auto& copy : {first, second, longer}) copies.add(copy);
    CHECK(copies.find_same(*make_copy(0, 16, false)) == first);
    CHECK(copies.find_same(*longer) == longer);
    CHECK(copies.find_same(*make_copy(8, 16, true)) == nullptr);
    auto box = make_copy(0, 16, true);
    box->slice_rows = 2;
    CHECK(copies.find_same(*box) == nullptr);
    CHECK(copies.erase_if([&](auto& copy) { return copy == first; }) == 1);
    CHECK(copies.find_same(*first) == second);
    CHECK(copies.size() == 2);
}

TEST_CASE("sorted copies overlap when two of them do", "[graphs]") {
    std::mt19937 random(11);
    int overlapping = 0;
    for (int i = 0; i < 20'000; ++i) {
        auto some = random_copies(random), others = random_copies(random);
        bool expected = any_overlap_by_looking_at_all(some, others);
        REQUIRE(any_overlap(some, others) == expected);
        REQUIRE(any_overlap(some, some) == any_overlap_by_looking_at_all(some, some));
        overlapping += expected;
    }
    CHECK(overlapping > 1'000);
    CHECK(overlapping < 19'000);
}

TEST_CASE("whether many copies overlap takes few steps for each", "[graphs]") {
    HostCopies copies;
    constexpr size_t count = 20'000;
    for (size_t i = 0; i < count; ++i) copies.add(make_copy((i * 7'919 % count) * 64, 64, i % 2 == 0));
    size_t steps = 0;
    CHECK_FALSE(any_overlap(copies, copies, &steps));
    CHECK(steps < count * 128);  // 2 n log n is 1.2 million; each with each were 400 million
    copies.add(make_copy(640, 128, false));
    CHECK(any_overlap(copies, copies));
}
