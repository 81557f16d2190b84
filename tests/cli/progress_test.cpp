// Progress as a terminal of some width shows it, and as a log does.
#include "cli/ui/progress.hpp"

#include <sstream>

#include "api_client/base/text.hpp"
#include "cli/ui/text.hpp"
#include "cli/ui/time.hpp"
#include "tests/cli/log.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("a line that is drawn again and again fits into one row", "[ui][progress]") {
    for (int width : {1, 9, 20, 40, 80}) {
        std::ostringstream out;
        ui::Progress progress({out, true, {}, [&] { return width; }});
        progress.begin("creating the machine at provider lö日本cal");
        progress.note("building the machine image, once: downloading and installing packages\tand \r more " +
                      std::string(100, 'x'));
        progress.say("");  // draws it again
        std::istringstream lines{out.str()};
        for (std::string line; std::getline(lines, line, '\r');) {
            line = line.substr(0, line.find('\n'));
            if (line.starts_with("\033[K")) line.erase(0, 3);
            INFO(width << ": " << line);
            CHECK(ui::columns(line) < static_cast<size_t>(width) + (width == 1));
        }
        CHECK(out.str().find('\t') == std::string::npos);
    }
}

TEST_CASE("a step that ends before anybody looks leaves no trace", "[ui][progress]") {
    std::ostringstream out;
    ui::Progress progress({out, false});
    progress.begin("asking", std::chrono::hours(1));
    progress.end();
    CHECK(out.str().empty());
    progress.begin("asking", std::chrono::hours(1));
    progress.show();
    progress.end("it answered");
    CHECK(out.str().starts_with("✓ asking: it answered"));
}

TEST_CASE("a log is told of a step that takes long, with what it is at", "[ui][progress]") {
    test::Log log;
    std::ostream out(&log);
    ui::Progress progress({out, false});
    progress.begin("creating the machine", std::chrono::milliseconds(1));
    progress.note("step 3");
    CHECK(log.comes_to_say("… creating the machine: step 3  ("));
    progress.note("step 4");
    progress.say("a word between");
    progress.end("made");
    CHECK(log.comes_to_say("a word between\n✓ creating the machine: made  ("));
}

TEST_CASE("somebody else's words are shown, and never obeyed by the terminal", "[ui][text]") {
    CHECK(ui::plain("naïve 日本 🦄\n\tline") == "naïve 日本 🦄\n\tline");
    CHECK(ui::plain("\033[2J\033]0;title\a\r") == "\\033[2J\\033]0;title\\007\\015");
    CHECK(ui::plain("\xc2\x9b"
                    "2J\x7f") == "\\302\\2332J\\177");
    CHECK(ui::plain("\u202eman") == "\\342\\200\\256man");
    CHECK(ui::plain("a\\\n", "\n\\") == "a\\134\\012");
    for (const char* broken : {"\xff", "\x80", "\xc3", "\xe2\x82", "\xc3(", "\xf8\x88\x80\x80\x80"})
        CHECK(ui::plain(broken)[0] == '\\');
    CHECK(ui::plain_cell(ui::Paint{true}.good("up")) == "\033[32mup\033[0m");
    CHECK(ui::plain_cell("a\nb\033[2Jc\033[") == "a\\012b\\033[2Jc\\033[");
}

TEST_CASE("text is measured, cut and coloured by what a terminal shows of it", "[ui][text]") {
    CHECK(ui::columns("naïve") == 5);
    CHECK(ui::columns("日本") == 4);
    CHECK(ui::columns("\033[32mok\033[0m") == 2);
    CHECK(ui::columns("\xff\xfe") > 0);
    CHECK(ui::cut("short", 5) == "short");
    CHECK(ui::cut("longer", 5) == "long…");
    CHECK(ui::cut("日本語", 5) == "日本…");
    CHECK(ui::cut("a\nb", 5) == "a b");
    CHECK(ui::cut(ui::Paint{true}.strong("PROVIDER") + "  REGION", 5) == "\033[1mPROV…\033[0m");
    CHECK(ui::Paint{}.bad("x") == "x");
    CHECK(ui::Paint{true}.bad("x") == "\033[31mx\033[0m");
    CHECK(ui::age("2026-01-02T03:04:05Z", "2026-01-02T03:04:55Z") == "50 s");
    CHECK(ui::age("2026-01-02T03:04:05Z", "2026-01-02T04:03:55Z") == "59 min");
    CHECK(ui::age("2026-01-02T03:04:05Z", "2026-01-03T04:03:55Z") == "24 h");
    CHECK(ui::age("2026-01-02T03:04:05Z", "2026-03-02T03:04:05Z") == "59 d");
    CHECK(ui::age("then", "2026-03-02T03:04:05Z").empty());
    CHECK(tnr::nearest("conect", {"connect", "completion"}) == "connect");
    CHECK(tnr::nearest("strat", {"status", "start"}) == "start");
    CHECK(tnr::nearest("xyz", {"status", "start"}).empty());
}

TEST_CASE("a number is read up to where it ends, whatever the language", "[ui]") {
    auto read = [](const char* text) {
        auto leading = ui::leading_number(text);
        return leading ? std::pair(leading->number, std::string(leading->rest)) : std::pair(-1.0, std::string());
    };
    CHECK(read("8GiB") == std::pair(8.0, std::string("GiB")));
    CHECK(read("0.05EUR") == std::pair(0.05, std::string("EUR")));
    CHECK(read("5e") == std::pair(5.0, std::string("e")));
    CHECK(read("5e+") == std::pair(5.0, std::string("e+")));
    CHECK(read("1.5e3b") == std::pair(1500.0, std::string("b")));
    CHECK(read(".5") == std::pair(0.5, std::string()));
    CHECK(read("7,5") == std::pair(7.0, std::string(",5")));
    for (const char* none : {"", ".", "e3", "-1", "+1", " 1", "inf", "nan", "1e999"}) CHECK(read(none).first == -1);
}
