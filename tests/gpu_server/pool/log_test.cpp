// Foreign text in lines that people read.
#include "gpu_server/pool/log.hpp"

#include "tests/support/catch.hpp"

using tnr::counted;
using tnr::harmless;
using tnr::server::printable;

TEST_CASE("one of something is not called several", "[pool][log]") {
    CHECK(counted(0, "claim") + counted(1, "wipe") == "0 claims1 wipe");
}

TEST_CASE("foreign text controls no terminal, forges no line and is UTF-8", "[pool][log]") {
    CHECK(harmless("train.py --größe 7 猫 🐈") == "train.py --größe 7 猫 🐈");
    CHECK(harmless("a\nb\x1b[2J\x7f") == "a?b?[2J?");
    CHECK(harmless("\xc2\x9b[2J") == "?[2J");  // the same, as one character
    CHECK(harmless("gpj.\xe2\x80\xae"
                   "exe") == "gpj.?exe");  // what follows would be written from right to left
    CHECK(harmless("\xe2\x81\xa6x\xe2\x81\xa9") == "?x?");
    CHECK(harmless("1\xd8\x9c 2") == "1? 2");            // turns the direction, too
    CHECK(harmless("one\xe2\x80\xa8two") == "one?two");  // a line's end to some
    CHECK(harmless("\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82") == std::string(12, '?'));
    CHECK(harmless(std::string_view("a\0b", 3)) == "a?b");
}

TEST_CASE("a long text is cut between characters", "[pool][log]") {
    std::string text(199, 'x');
    CHECK(printable(text + "é") == text + "…");
    CHECK(printable(text.substr(2) + "🐈") == text.substr(2) + "…");
    CHECK(printable(text + "\xff\xff") == text + "?…");
    CHECK(printable(text + "y") == text + "y");
}
