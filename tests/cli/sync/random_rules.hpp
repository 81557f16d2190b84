// Random trees, and random rules for them.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/support/files.hpp"

namespace tnr::test::random_rules {

namespace fs = std::filesystem;

class Random {
public:
    explicit Random(unsigned seed) : engine_(seed) {}
    size_t below(size_t count) { return engine_() % count; }
    bool one_in(size_t count) { return below(count) == 0; }
    std::string of(const std::vector<std::string>& words) { return words[below(words.size())]; }

private:
    std::mt19937 engine_;
};

inline const std::vector<std::string> names = {"a",   "b",   "ab",     "foo", "foo.o", "bar.txt", "build",
                                               "x y", "[a]", "a*b",    "!no", "#no",   "a\\b",    "é",
                                               "-",   "b ",  "foobar", "A",   "1",     "]"};

inline void random_tree(Random& random, const std::string& folder, int depth) {
    fs::create_directories(folder);
    for (size_t i = 0; i < 3 + random.below(5); ++i) {
        std::string path = folder + "/" + random.of(names);
        struct stat found;
        if (::lstat(path.c_str(), &found) == 0) continue;
        if (depth > 0 && random.one_in(2))
            random_tree(random, path, depth - 1);
        else if (random.one_in(12))
            fs::create_symlink(".", path);
        else
            test::write_text(path, "");
    }
}

inline std::string random_pattern(Random& random) {
    static const std::vector<std::string> pieces = {"*",          "?",     "**",    "/",    "/",     "[ab]",
                                                    "[!a]",       "[^b]",  "[a-f]", "\\",   "!",     "#",
                                                    " ",          "[",     "]",     "[]a]", "-",     "[[:alpha:]]",
                                                    "[[:nope:]]", "[\\]]", "[a-]",  "\\*",  "[]-a]", "[[:digit:]x]",
                                                    "***",        "**/",   "/**/",  "[a",   "\\ ",   "[:a]"};
    std::string pattern;
    if (random.one_in(6)) pattern += "!";
    if (random.one_in(5)) pattern += "/";
    if (random.one_in(6)) pattern += "**/";
    for (size_t i = 0; i < 1 + random.below(4); ++i) pattern += random.one_in(2) ? random.of(names) : random.of(pieces);
    if (random.one_in(5)) pattern += "/";
    if (random.one_in(8)) pattern += "/**";
    if (random.one_in(10)) pattern += "  ";
    if (random.one_in(20)) pattern += "\r";
    return pattern;
}

// Folders of the tree, itself among them, that shall have rules.
inline std::vector<std::string> some_folders(Random& random, const std::string& tree) {
    std::vector<std::string> folders = {tree};
    for (const auto& entry : fs::recursive_directory_iterator(tree))
        if (entry.is_directory() && !entry.is_symlink() && random.one_in(4)) folders.push_back(entry.path());
    return folders;
}

inline std::string random_rules_text(Random& random) {
    std::string text = random.one_in(10) ? "\xef\xbb\xbf" : "";
    for (size_t i = 0; i < 1 + random.below(5); ++i) text += random_pattern(random) + (random.one_in(15) ? "" : "\n");
    return text;
}

}  // namespace tnr::test::random_rules
