// A folder here, a machine, and `tnr sync --watch` between them.
#pragma once

#include <filesystem>
#include <functional>
#include <thread>

#include "api_client/base/interrupt.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

namespace tnr::test::watch_world {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

struct SyncWorld {
    test::FakeSession fake;
    test::TemporaryFolder cache, there;
    test::Sshd sshd{"SetEnv XDG_CACHE_HOME=" + cache.path() + "\n"};
    std::string tree = fake.folder / "tree", copy = there / "tree";

    SyncWorld() {
        interrupt::raise_for_test();  // from now on there is something to wait for in poll()
        interrupt::clear_for_test();
        fake.start_demo();
        fake.put_demo_at(sshd);
        fs::create_directories(tree + "/sub");
        test::write_text(tree + "/a", "a");
        test::write_text(tree + "/sub/b", "b");
    }
    std::string to() const { return "demo:" + copy; }
};

// Whether it comes true soon; a slow machine has all the time it needs.
inline bool comes_true(const std::function<bool()>& what) {
    for (int i = 0; i < 600; ++i, std::this_thread::sleep_for(50ms))
        if (what()) return true;
    return false;
}

inline bool says(const std::string& path, const std::string& content) {
    std::error_code none;
    return fs::is_regular_file(path, none) && test::read_text(path) == content;
}

// `tnr sync --watch` in a thread, until this goes.
class Watching {
public:
    Watching(SyncWorld& world, std::vector<std::string> words) {
        thread_ = std::thread([this, &world, words] { code_ = world.fake.tnr(words); });
    }
    ~Watching() {
        interrupt::raise_for_test();
        thread_.join();
        interrupt::clear_for_test();
        CHECK(code_ == 0);
    }

private:
    int code_ = -1;
    std::thread thread_;
};

}  // namespace tnr::test::watch_world
