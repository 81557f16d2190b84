// The number that says whose a GPU is.
#include "gpu_server/pool/fences.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

class Folder {
public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "tnr-test-fences-XXXXXX").string();
        path = mkdtemp(name.data());
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
};

}  // namespace

TEST_CASE("a GPU's fencing number only grows, and all who have it see that", "[pool][fences]") {
    Folder folder;
    auto fences = Fences::open("pool", folder.path), others = Fences::open("pool", folder.path);
    REQUIRE(fences);
    REQUIRE(others);
    auto file = fences->raise("GPU", 5);
    REQUIRE(file);
    auto fence = Fence::map(*file);
    REQUIRE(fence);
    CHECK(fence->highest() == 5);
    CHECK(fences->raise("GPU", 5));  // a claim's second worker
    REQUIRE(others->raise("GPU", 9));
    CHECK(fence->highest() == 9);
    auto late = fences->raise("GPU", 5);
    REQUIRE(!late);
    CHECK(late.error().what.find("has been given to another") != std::string::npos);
    CHECK(fence->highest() == 9);
    CHECK(fences->raise("another GPU", 1));
    CHECK(Fences::open("another pool", folder.path)->raise("GPU", 1));
    // A worker cannot change what it was given.
    CHECK(write(file->get(), "x", 1) == -1);
}

TEST_CASE("a fencing number that was removed still keeps its readers off", "[pool][fences]") {
    Folder folder;
    auto fences = Fences::open("pool", folder.path);
    REQUIRE(fences);
    auto file = fences->raise("GPU", 5);
    REQUIRE(file);
    auto fence = Fence::map(*file);
    REQUIRE(fence);
    REQUIRE(fences->raise("GPU", 7));
    fences->remove("GPU");
    CHECK(fence->highest() == 7);
    CHECK(std::filesystem::is_empty(folder.path + "/tnr-fences-" + std::to_string(geteuid())));
}

TEST_CASE("of processes that raise a GPU's number at once the largest stays", "[pool][fences]") {
    Folder folder;
    constexpr int processes = 4, times = 2000;
    REQUIRE(Fences::open("pool", folder.path));
    std::vector<pid_t> children;
    for (int process = 0; process < processes; ++process) {
        pid_t child = fork();
        if (child == 0) {
            auto fences = Fences::open("pool", folder.path);
            for (int i = 1; fences && i <= times; ++i) (void)fences->raise("GPU", i * processes + process);
            _exit(fences ? 0 : 1);
        }
        children.push_back(child);
    }
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
    auto file = Fences::open("pool", folder.path)->raise("GPU", times * processes + processes - 1);
    REQUIRE(file);
    CHECK(Fence::map(*file)->highest() == times * processes + processes - 1);
    CHECK(!Fences::open("pool", folder.path)->raise("GPU", times * processes + processes - 2));
}

TEST_CASE("what killed servers left goes when the next one starts, and nothing that somebody uses", "[pool][fences]") {
    Folder folder;
    const auto of = [&](const std::string& pool) {
        return folder.path + "/tnr-fences-" + std::to_string(geteuid()) + "/" + pool;
    };
    auto used = Fences::open("used", folder.path);
    REQUIRE(used);
    REQUIRE(used->raise("GPU", 5));
    pid_t killed = fork();
    if (killed == 0) {
        auto fences = Fences::open("left", folder.path);
        (void)fences->raise("GPU", 7);
        _exit(0);  // in no order
    }
    waitpid(killed, nullptr, 0);
    REQUIRE(std::filesystem::exists(of("left") + "/GPU"));
    // Its own pool's numbers go on to hold.
    { REQUIRE(!Fences::open("left", folder.path)->raise("GPU", 6)); }
    REQUIRE(mkdir(of("older").c_str(), 0700) == 0);  // of a server that locks nothing
    auto next = Fences::open("next", folder.path);
    REQUIRE(next);
    CHECK(std::filesystem::exists(of("older")));
    CHECK(!std::filesystem::exists(of("left")));
    CHECK(!used->raise("GPU", 4));  // still there
    CHECK(std::filesystem::exists(of("used") + "/GPU"));
    // Who leaves takes nothing from another server of the same pool.
    auto other = Fences::open("used", folder.path);
    used->remove("GPU");
    CHECK(other->raise("GPU", 1));
}

TEST_CASE("fencing numbers are not kept where others may write", "[pool][fences]") {
    Folder folder;
    auto path = folder.path + "/tnr-fences-" + std::to_string(geteuid());
    REQUIRE(mkdir(path.c_str(), 0700) == 0);
    REQUIRE(chmod(path.c_str(), 0777) == 0);
    CHECK(!Fences::open("pool", folder.path));
    REQUIRE(rmdir(path.c_str()) == 0);
    REQUIRE(symlink(folder.path.c_str(), path.c_str()) == 0);
    CHECK(!Fences::open("pool", folder.path));
}
