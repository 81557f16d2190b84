// `tnr help`, and what is written from the same grammar: man pages and the reference.
#include "cli/commands/help.hpp"

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "cli/manual.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("help shows what --help shows, by any name of a command", "[cli][help]") {
    test::FakeSession fake;
    auto said = [&](const std::vector<std::string>& words) {
        CHECK(fake.tnr(words) == 0);
        return fake.out.str();
    };
    CHECK(said({"help"}) == said({"--help"}));
    auto start = said({"start", "--help"});
    CHECK(start.find("Usage: tnr start [OPTIONS] [name]") != std::string::npos);
    CHECK(said({"help", "start"}) == start);
    CHECK(said({"help", "create"}) == start);
    CHECK(said({"help", "login", "pool"}) == said({"login", "pool", "--help"}));
    CHECK(fake.document({"help", "ls"}) == fake.document({"status", "--help"}));
    CHECK(fake.tnr({"help", "strat"}) == 2);
    CHECK(fake.err.str().find("did you mean 'start'?") != std::string::npos);
}

TEST_CASE("help on a terminal is broken between words, examples stay whole", "[cli][help]") {
    test::FakeSession fake;
    const int width = GENERATE(20, 40, 80);
    CAPTURE(width);
    REQUIRE(fake.tnr({"start", "--help"}) == 0);
    const std::string piped = fake.out.str();
    fake.session.out_is_terminal = true;
    fake.session.out_size = [&] { return ui::Size{24, width}; };
    REQUIRE(fake.tnr({"start", "--help"}) == 0);
    std::istringstream lines(fake.out.str());
    for (std::string line; std::getline(lines, line);) {
        INFO(line);
        const bool one_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
        CHECK((ui::columns(line) <= static_cast<size_t>(width) || line.starts_with("  tnr ") || one_word));
    }
    auto words_of = [](const std::string& text) {
        std::istringstream words(text);
        return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
    };
    CHECK(words_of(fake.out.str()) == words_of(piped));
    if (width == 80) CHECK(fake.out.str().find("\n  --provider TEXT             Who makes") != std::string::npos);
}

TEST_CASE("every command has a man page that man takes without a warning, and a place in the reference",
          "[cli][help]") {
    test::FakeSession fake;
    std::string folder = fake.folder / "pages";
    REQUIRE(fake.tnr({"help", "--write", folder}) == 0);
    auto reference = test::read_text(folder + "/commands.md");
    const auto help = fake.document({"--help"});
    for (const auto& command : help["commands"]) {
        std::string name = command["name"], page = test::read_text((folder + "/tnr-").append(name) + ".1");
        INFO(name);
        std::string shown = name;
        if (size_t dash = name.find('-'); dash != std::string::npos) shown.insert(dash, "\\");
        CHECK(page.find(".SH SYNOPSIS\n.B tnr " + shown + " [OPTIONS]") != std::string::npos);
        CHECK(reference.find("\n## tnr " + name + "\n") != std::string::npos);
        CHECK(page.find(".SH EXAMPLES\n") != std::string::npos);
    }
    CHECK(test::read_text(folder + "/tnr-login.1").find(".SH TNR LOGIN POOL\n") != std::string::npos);
    if (std::system("command -v groff >/dev/null") != 0) {
        WARN("no groff here: the man pages are not read by it");
        return;
    }
    for (const auto& page : std::filesystem::directory_iterator(folder)) {
        if (page.path().extension() != ".1") continue;
        INFO(page.path());
        std::string complaints = fake.folder / "complaints";
        CHECK(std::system(("groff -man -Kutf8 -Tutf8 -ww '" + page.path().string() + "' 2>'" + complaints + "' >'" +
                           (fake.folder / "shown") + "'")
                              .c_str()) == 0);
        CHECK(test::read_text(complaints).empty());
        CHECK(test::read_text(fake.folder / "shown").find("tnr") != std::string::npos);
    }
}

TEST_CASE("a man page fills prose to its reader's width, and keeps the lines of lists", "[cli][help]") {
    const std::string prose(70, 'p'),
        notes = prose + "\n" + prose + "\nend.\n\nTypes:\n  h100  80 GiB\n\n" + prose + "\n";
    auto page = cli::man_page({{"", {}, {}, {}, "All", ""}, {"x", {}, {}, {}, "X", notes}}, "x", "1.0");
    CHECK(page.find(".SH DESCRIPTION\n.PP\n" + prose + "\n" + prose +
                    "\nend.\n.PP\n.nf\nTypes:\n  h100  80 GiB\n.fi\n.PP\n" + prose) != std::string::npos);
}

TEST_CASE("what roff would take for a command is shown as it is", "[cli][help]") {
    std::vector<cli::Place> places = {{"", {{"x", "X"}}, {}, {}, "All", ""},
                                      {"x",
                                       {},
                                       {{"--back", "A \\ and a | bar", {"-b"}, true}},
                                       {{"name", "Which", {}, false, true, true}},
                                       "It's -1",
                                       ".first\n'second\n\nExamples:\n  tnr x -- 'a\\nb'"}};
    auto page = cli::man_page(places, "x", "1.0");
    CHECK(page.find("\\&.first\n\\&'second\n.fi\n") != std::string::npos);
    CHECK(page.find("tnr x \\-\\- 'a\\enb'") != std::string::npos);
    CHECK(page.find(".B \\-b, \\-\\-back VALUE\nA \\e and a | bar\n") != std::string::npos);
    CHECK(page.find(".B tnr x [OPTIONS] NAME…\n") != std::string::npos);
    CHECK(cli::reference(places).find("| `-b, --back VALUE` | A \\ and a \\| bar |\n") != std::string::npos);
}
