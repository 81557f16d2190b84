// See files.hpp.
#include "tests/support/files.hpp"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/catch.hpp"

namespace tnr::test {

TemporaryFolder::TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/tnr-test.XXXXXX";
    REQUIRE(::mkdtemp(pattern.data()));
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

void write_text(const std::string& path, const std::string& text) {
    std::ofstream file{path, std::ios::binary};
    file << text;
    REQUIRE(file.flush());
}

std::string read_text(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    REQUIRE(file);
    std::ostringstream text;  // in blocks: byte by byte takes minutes where nothing is optimised
    text << file.rdbuf();
    return std::move(text).str();
}

}  // namespace tnr::test
