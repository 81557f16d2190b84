// What one server hands over to the next, as bytes. That programs go on is tests/end_to_end/pool_reload_test.py's.
#include "gpu_server/supervisor/handover.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/catch.hpp"

namespace tnr::server {
namespace {

UniqueFd file_with(const std::string& text, int seals) {
    UniqueFd file(memfd_create("document", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    REQUIRE(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
    return file;
}

constexpr int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

}  // namespace

TEST_CASE("what is handed over arrives, with its descriptors, each once", "[handover]") {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    UniqueFd reads(ends[0]);
    Handover handover;
    const int number = handover.keep(UniqueFd(ends[1]));
    handover.section("part") = {{"pipe", number}, {"name", "a"}};
    auto document = handover.to_file();
    REQUIRE(document);
    CHECK(handover.take(number).release() == number);  // as in the next process, which has inherited it

    auto taken = Handover::from_file(std::move(*document));
    REQUIRE(taken);
    CHECK(taken->at("part").at("name") == "a");
    auto pipe = taken->take(taken->at("part").at("pipe"));
    REQUIRE(pipe);
    CHECK(::write(pipe.get(), "x", 1) == 1);
    CHECK(!taken->take(taken->at("part").at("pipe")));
    CHECK((fcntl(pipe.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("what makes no sense is refused in clear words", "[handover]") {
    auto refused = [](const std::string& text, int seals = sealed) {
        auto taken = Handover::from_file(file_with(text, seals));
        REQUIRE(!taken);
        return taken.error().what;
    };
    const std::string whole = R"({"handover": 1, "files": []})";
    CHECK(Handover::from_file(file_with(whole, sealed)));
    CHECK(refused(whole, F_SEAL_GROW).find("no sealed file") != std::string::npos);
    CHECK(refused(R"({"handover": 2, "files": []})").find("another version") != std::string::npos);
    for (auto* text : {"", "{", "[]", "7", R"({"handover": 1})", R"({"handover": 1, "files": 7})",
                       R"({"handover": "1", "files": []})", R"({"handover": 1, "files": ["x"]})",
                       R"({"handover": 1, "files": [-1]})", R"({"handover": 1, "files": [2]})",
                       R"({"handover": 1, "files": [999999]})", "\xff\xfe"}) {
        INFO(text);
        CHECK(refused(text).find("makes no sense") != std::string::npos);
    }
}

TEST_CASE("a section that has something else than was written is an error, and no crash", "[handover]") {
    Handover handover;
    handover.section("part") = {{"number", "seven"}};
    auto read = reading("part", [&]() -> Result<> {
        (void)handover.at("part").at("number").get<int>();
        return Ok{};
    });
    REQUIRE(!read);
    CHECK(read.error().what.find("of its part makes no sense") != std::string::npos);
    CHECK(!reading("other", [&]() -> Result<> { return (void)handover.at("other"), Ok{}; }));
}

TEST_CASE("only an answer of the same version is taken for a yes", "[handover]") {
    auto answer = [](const std::string& text) { return why_not({Received::What::message, text}); };
    CHECK(!answer(R"({"handover": 1, "version": "9.9"})"));
    for (auto* text : {R"({"handover": 2})", R"({"handover": "1"})", "{}", "1", "[1]", "nonsense", ""}) {
        INFO(text);
        CHECK(answer(text));
    }
    CHECK(why_not({Received::What::closed, ""}));
}

}  // namespace tnr::server
