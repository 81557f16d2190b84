#include "gpu_client/protocol/fatbin.hpp"

#include <cstring>
#include "tests/support/catch.hpp"

#include "gpu_client/protocol/bundle.hpp"
#include "gpu_client/protocol/cubin.hpp"
#include "images.hpp"

using namespace tnr::fatbin;

namespace {

std::string_view text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

size_t count(const std::vector<Entry>& entries, Compression compression) {
    size_t found = 0;
    for (const Entry& entry : entries) found += entry.compression == compression;
    return found;
}

std::vector<Entry> made_up(std::initializer_list<Entry> entries) {
    return entries;
}

Entry cubin(unsigned sm, Variant variant = Variant::plain) {
    Entry entry;
    entry.kind = Kind::elf;
    entry.sm = sm;
    entry.variant = variant;
    return entry;
}

Entry ptx(unsigned sm, Variant variant = Variant::plain) {
    Entry entry = cubin(sm, variant);
    entry.kind = Kind::ptx;
    return entry;
}

template <class T>
void poke(std::vector<std::byte>& bytes, size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

}  // namespace

TEST_CASE("every compression of nvcc unpacks to the same code", "[fatbin]") {
    auto reference = image("none.fatbin");
    auto plain = entries(reference);
    REQUIRE(plain);
    REQUIRE(plain->size() == 4);
    CHECK(count(*plain, Compression::none) == 4);
    for (std::string mode : {"speed", "size", "default"}) {
        INFO(mode);
        auto bytes = image(mode + ".fatbin");
        auto packed = entries(bytes);
        REQUIRE(packed);
        REQUIRE(packed->size() == plain->size());
        CHECK(count(*packed, mode == "speed" ? Compression::lz4 : Compression::zstd) >= 2);
        for (size_t i = 0; i < packed->size(); ++i) {
            CHECK((*packed)[i].sm == (*plain)[i].sm);
            CHECK((*packed)[i].kind == (*plain)[i].kind);
            auto code = unpack((*packed)[i]);
            auto expected = unpack((*plain)[i]);
            REQUIRE(code);
            REQUIRE(expected);
            if ((*plain)[i].kind != Kind::ptx) continue;  // a cubin holds a build id of its own
            CHECK(text_of(*code).find(".entry holes") != std::string_view::npos);
            CHECK(code->back() != std::byte{0});
            CHECK(*code == *expected);
        }
    }
}

TEST_CASE("architecture-specific and family-specific code is recognised", "[fatbin]") {
    auto bytes = image("specific.fatbin");
    auto found = entries(bytes);
    REQUIRE(found);
    for (const Entry& entry : *found)
        CHECK(entry.variant == (entry.sm == 90 ? Variant::architecture : Variant::family));
    CHECK(choose(*found, 9, 0)->sm == 90);
    CHECK(choose(*found, 10, 3)->sm == 100);
    CHECK(choose(*found, 12, 0) == nullptr);
    CHECK(choose(*found, 8, 0) == nullptr);
}

TEST_CASE("the choice is the best cubin of the same major version, else the best PTX", "[fatbin]") {
    auto all = made_up({ptx(52), cubin(80), cubin(86), ptx(80), cubin(90), ptx(90), ptx(120)});
    CHECK(choose(all, 8, 0) == &all[1]);
    CHECK(choose(all, 8, 9) == &all[2]);
    CHECK(choose(all, 9, 0) == &all[4]);
    CHECK(choose(all, 10, 0) == &all[5]);  // a cubin never runs on another major version
    CHECK(choose(all, 7, 5) == &all[0]);
    CHECK(choose(all, 5, 0) == nullptr);
    CHECK(choose_ptx(all, 12, 0) == &all[6]);
    auto exact = made_up({cubin(90, Variant::architecture), ptx(100, Variant::family), ptx(80)});
    CHECK(choose(exact, 9, 0) == &exact[0]);
    CHECK(choose(exact, 10, 3) == &exact[1]);
    CHECK(choose(exact, 12, 0) == &exact[2]);
}

TEST_CASE("the length of an image is found without being told", "[fatbin]") {
    for (const char* name : {"default.fatbin", "sm_75.cubin", "sm_90.cubin", "sm_120.cubin"}) {
        INFO(name);
        auto bytes = image(name);
        auto size = image_size(bytes.data());
        REQUIRE(size);
        CHECK(*size == bytes.size());
    }
    CHECK(*image_size(".version 9.0") == 13);
    CHECK_FALSE(
        image_size("\x7f"
                   "ELF but then something else, long enough to read a header of it ............"));
    CHECK_FALSE(image_size(""));
    CHECK_FALSE(image_size("hello"));
}

TEST_CASE("a container cut off anywhere is refused or shorter, never read beyond", "[fatbin]") {
    auto whole = image("default.fatbin");
    for (size_t size = 0; size < whole.size(); size += size < 256 ? 1 : 97) {
        std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
        CHECK_FALSE(entries(cut));
    }
}

TEST_CASE("entries that lie about their sizes are refused", "[fatbin]") {
    constexpr size_t first = 16;  // the container's own header
    SECTION("the payload") {
        auto bytes = image("size.fatbin");
        poke(bytes, first + 8, uint64_t{0} - 64);
        CHECK_FALSE(entries(bytes));
    }
    SECTION("the entry's header") {
        auto bytes = image("size.fatbin");
        poke(bytes, first + 4, uint32_t{0});
        CHECK_FALSE(entries(bytes));
    }
    SECTION("the compressed size") {
        auto bytes = image("size.fatbin");
        poke(bytes, first + 16, uint32_t{0x7fffffff});
        CHECK_FALSE(entries(bytes));
    }
    SECTION("the unpacked size") {
        auto bytes = image("size.fatbin");
        poke(bytes, first + 56, uint64_t{1} << 60);
        auto found = entries(bytes);
        REQUIRE(found);
        CHECK_FALSE(unpack((*found)[0]));
    }
    SECTION("damaged compressed bytes") {
        auto bytes = image("size.fatbin");
        auto found = entries(bytes);
        REQUIRE(found);
        auto at = static_cast<size_t>((*found)[0].payload.data() - bytes.data());
        poke(bytes, at, uint32_t{0});
        CHECK_FALSE(unpack((*found)[0]));
    }
}

TEST_CASE("a wrapper leads to its container", "[fatbin]") {
    auto bytes = image("default.fatbin");
    struct {
        uint32_t magic = wrapper_magic, version = 1;
        const void* header;
        const void* unused = nullptr;
    } wrapper{.header = bytes.data()};
    CHECK(header_of_wrapper(&wrapper) == bytes.data());
    CHECK(header_of_wrapper(bytes.data()) == nullptr);
}

TEST_CASE("a wrapper tells what it was linked from", "[fatbin]") {
    auto linked = image("sm_90.cubin"), one = image("default.fatbin"), other = image("size.fatbin");
    const void* inputs[] = {one.data(), other.data(), nullptr};
    struct {
        uint32_t magic = wrapper_magic, version = 2;
        const void* header;
        const void* inputs;
    } wrapper{.header = linked.data(), .inputs = inputs};
    CHECK(inputs_of_wrapper(&wrapper) == std::vector<const void*>{one.data(), other.data()});
    wrapper.version = 1;  // there the pointer means something else
    CHECK(inputs_of_wrapper(&wrapper).empty());
    CHECK(inputs_of_wrapper(one.data()).empty());
}

TEST_CASE("a linked wrapper travels as bytes and is one again", "[fatbin]") {
    auto linked = image("specific.fatbin"), one = image("default.fatbin"), other = image("size.fatbin");
    std::vector<std::span<const std::byte>> containers{linked, one, other};
    auto bytes = bundle(containers);
    CHECK(is_bundle(bytes));
    CHECK_FALSE(is_bundle(linked));
    auto found = Unbundled::from(bytes);
    REQUIRE(found);
    auto* wrapper = found->wrapper();
    std::vector<const void*> there{header_of_wrapper(wrapper)};
    for (auto* input : inputs_of_wrapper(wrapper)) there.push_back(input);
    REQUIRE(there.size() == containers.size());
    for (size_t i = 0; i < there.size(); ++i) {
        REQUIRE(*image_size(there[i]) == containers[i].size());
        CHECK(std::memcmp(there[i], containers[i].data(), containers[i].size()) == 0);
    }
}

TEST_CASE("a bundle that lies about what it holds is refused", "[fatbin]") {
    auto one = image("default.fatbin");
    std::vector<std::span<const std::byte>> containers{one, one};
    auto whole = bundle(containers);
    for (size_t size = 0; size + 8 < whole.size(); size += size < 64 ? 1 : 97)
        CHECK_FALSE(Unbundled::from(std::span(whole).first(size)));
    for (uint32_t count : {0u, 3u, 0xffffffffu}) {
        auto wrong = whole;
        poke(wrong, 4, count);
        CHECK_FALSE(Unbundled::from(wrong));
    }
    poke(whole, 8, uint32_t{0});  // no container
    CHECK_FALSE(Unbundled::from(whole));
}
