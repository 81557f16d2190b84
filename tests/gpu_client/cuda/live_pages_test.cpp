// What is carried over of pages that the program and a running kernel use at once, and in which order.
#include "gpu_client/cuda/live_pages.hpp"

#include <cstdint>
#include <cstring>
#include "tests/support/catch.hpp"

using namespace tnr::cuda;

namespace {

PageBytes page_of(std::vector<uint32_t> words) {
    PageBytes bytes(words.size() * sizeof(uint32_t));
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
}

std::vector<uint32_t> words_of(const PageBytes& bytes) {
    std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
    std::memcpy(words.data(), bytes.data(), bytes.size());
    return words;
}

std::vector<std::pair<size_t, size_t>> changed(const std::vector<uint32_t>& before, const std::vector<uint32_t>& after,
                                               size_t first) {
    std::vector<std::pair<size_t, size_t>> runs;
    for (auto run : changed_words(page_of(before), page_of(after), first)) runs.emplace_back(run.first, run.count);
    return runs;
}

using Runs = std::vector<std::pair<size_t, size_t>>;

}  // namespace

TEST_CASE("words that changed are carried from the one that was written first", "[live pages]") {
    CHECK(changed({1, 2, 3, 4}, {1, 2, 3, 4}, 0).empty());
    CHECK(changed({1, 2, 3, 4}, {9, 2, 8, 7}, 0) == Runs{{0, 4}, {8, 8}});
    CHECK(changed({1, 2, 3, 4}, {9, 2, 8, 7}, 8) == Runs{{8, 8}, {0, 4}});
    CHECK(changed({1, 2, 3, 4}, {9, 8, 7, 6}, 5) == Runs{{4, 12}, {0, 4}});  // a run is cut there
    CHECK(changed({1, 2, 3, 4}, {1, 2, 3, 6}, 0) == Runs{{12, 4}});
}

TEST_CASE("a word of which any byte changed is carried whole, and the last one may be shorter", "[live pages]") {
    CHECK(changed({0x01000000, 0}, {0x00000001, 0}, 0) == Runs{{0, 4}});
    PageBytes before(6), after(6);
    after[5] = std::byte{1};
    auto runs = changed_words(before, after, 0);
    REQUIRE(runs.size() == 1);
    CHECK(runs[0].first == 4);
    CHECK(runs[0].count == 2);
}

TEST_CASE("what the GPU changed is taken in, and what the program wrote meanwhile stays", "[live pages]") {
    LivePage page;
    page.theirs = page_of({1, 2, 3});
    page.known = page_of({1, 20, 3});  // the second is on its way to the GPU
    page.take_in(page_of({10, 2, 3}));
    CHECK(words_of(page.known) == std::vector<uint32_t>{10, 20, 3});
    CHECK(words_of(page.theirs) == std::vector<uint32_t>{10, 2, 3});
    page.take_in(page_of({10, 7, 30}));
    CHECK(words_of(page.known) == std::vector<uint32_t>{10, 20, 30});
}

TEST_CASE("a flag is not shown before what led up to it was looked at", "[live pages]") {
    // Data, flag: the kernel writes both between the two parts of one look, and the flag's part came last.
    Looks looks(page_of({0, 0}));
    CHECK_FALSE(looks.add(page_of({0, 1})));
    CHECK(looks.changed());
    CHECK_FALSE(looks.add(page_of({5, 1})));  // the data is new: it may be a flag of its own
    CHECK(looks.add(page_of({5, 1})));
    CHECK(words_of(looks.seen()) == std::vector<uint32_t>{5, 1});
}

TEST_CASE("a counter that goes on is shown as it was in the look before the last", "[live pages]") {
    Looks looks(page_of({0, 0}));
    CHECK_FALSE(looks.add(page_of({0, 1})));
    CHECK(looks.add(page_of({0, 2})));  // what led up to 2 may be missing, to 1 not
    CHECK(words_of(looks.seen()) == std::vector<uint32_t>{0, 1});
}

TEST_CASE("a page of which nothing is known is looked at twice", "[live pages]") {
    Looks looks({});
    CHECK_FALSE(looks.add(page_of({4, 5})));
    CHECK(looks.add(page_of({4, 5})));
    CHECK(words_of(looks.seen()) == std::vector<uint32_t>{4, 5});
}
