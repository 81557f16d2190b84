// .gitignore by git's rules: git itself says what these are.
#include "cli/sync/engine/ignore.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "cli/sync/engine/tree.hpp"
#include "tests/cli/sync/random_rules.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/files.hpp"

using namespace tnr;
using namespace tnr::test::random_rules;
namespace fs = std::filesystem;

namespace {

using Paths = std::set<std::string>;

Paths all_paths(const std::string& tree) {
    Paths paths;
    for (const auto& entry : fs::recursive_directory_iterator(tree))
        paths.insert(entry.path().string().substr(tree.size() + 1));
    return paths;
}

Paths walked_paths(const std::string& tree) {
    Paths paths;
    REQUIRE(sync::walk_tree(tree, {}, [&](const sync::Item& item, const auto&) {
        if (!item.path.empty()) paths.insert(item.path);
        return true;
    }));
    return paths;
}

// What git would leave out of them.
Paths ignored_by_git(const test::TemporaryFolder& folder, const std::string& tree, const Paths& paths) {
    std::string list;
    for (const auto& path : paths) list += path + '\0';
    test::write_text(folder / "paths", list);
    std::string git = "cd '" + tree + "' && HOME=" + folder.path() + " XDG_CONFIG_HOME=" + folder.path() +
                      " GIT_DIR=" + (folder / "git") + " GIT_WORK_TREE='" + tree + "' git ";
    if (!fs::exists(folder / "git")) REQUIRE(std::system((git + "init -q >/dev/null 2>&1").c_str()) == 0);
    int code = std::system((git + "check-ignore -z --stdin <" + (folder / "paths") + " >" + (folder / "said")).c_str());
    REQUIRE(WIFEXITED(code));
    REQUIRE(WEXITSTATUS(code) <= 1);  // 1: none is ignored
    std::string said = test::read_text(folder / "said");
    Paths ignored;
    for (size_t at = 0; at < said.size(); at = said.find('\0', at) + 1) ignored.insert(said.c_str() + at);
    return ignored;
}

}  // namespace

TEST_CASE("what is ignored is what git ignores, whatever the patterns are", "[sync][ignore]") {
    if (std::system("git --version >/dev/null 2>&1") != 0) {
        WARN("there is no git to compare with");
        return;
    }
    test::TemporaryFolder folder;
    unsigned seed = std::random_device{}();
    if (const char* given = std::getenv("TNR_TEST_SEED")) seed = static_cast<unsigned>(std::atoi(given));
    size_t ignored = 0, kept = 0;
    // Chance may give few of a kind: then there are more rounds.
    const auto enough = [&] { return ignored > 100 && kept > 100; };
    for (unsigned round = 0; round < 60 || (round < 600 && !enough()); ++round) {
        Random random(seed + round);
        std::string tree = folder / "tree";
        fs::remove_all(tree);
        random_tree(random, tree, 3);
        std::string rules;
        for (const auto& each : some_folders(random, tree)) {
            const std::string text = random_rules_text(random);
            test::write_text(each + "/.gitignore", text);
            rules += each.substr(tree.size()) + "/.gitignore:\n" + text + "\n";
        }
        Paths all = all_paths(tree), ours = all, by_git = ignored_by_git(folder, tree, all);
        for (const auto& path : walked_paths(tree)) ours.erase(path);
        INFO("TNR_TEST_SEED=" << seed + round << "\n" << rules);
        CHECK(ours == by_git);
        ignored += by_git.size();
        kept += all.size() - by_git.size();
    }
    CHECK(enough());
}

TEST_CASE(".tnrignore has the last word over .gitignore, and both over those of folders above", "[sync][ignore]") {
    test::TemporaryFolder folder;
    fs::create_directories(folder / "data/deep");
    for (auto name : {"a.log", "keep.log", "data/a.log", "data/deep/a.log", "data/model.bin"})
        test::write_text(folder / name, "");
    test::write_text(folder / ".gitignore", "*.log\n/data\n");
    test::write_text(folder / ".tnrignore", "!keep.log\n!data\n");
    test::write_text(folder / "data/.gitignore", "!a.log\n");
    test::write_text(folder / "data/deep/.tnrignore", "a.log\n");
    CHECK(walked_paths(folder.path()) == Paths{".gitignore", ".tnrignore", "keep.log", "data", "data/.gitignore",
                                               "data/a.log", "data/model.bin", "data/deep", "data/deep/.tnrignore"});
}

TEST_CASE("no pattern takes long", "[sync][ignore]") {
    std::string stars;
    for (int i = 0; i < 400; ++i) stars += "*a**/";
    sync::IgnorePattern pattern;
    REQUIRE(sync::IgnorePattern::parse(stars + "b", pattern));
    CHECK_FALSE(pattern.matches(std::string(4000, 'a'), "a", false));
}
