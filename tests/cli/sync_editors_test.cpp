// What programs do to files while `tnr sync --watch` looks on; and more of it than the kernel keeps.
#include <cstdlib>
#include <fstream>
#include <future>

#include "cli/sync/watch.hpp"
#include "tests/cli/watch_world.hpp"

using namespace tnr;
using namespace tnr::test::watch_world;

namespace {

bool runs(const std::string& line) {
    return std::system(("( " + line + " ) >/dev/null 2>&1 </dev/null").c_str()) == 0;
}

bool have(const std::string& program) {
    return runs("command -v " + program);
}

}  // namespace

TEST_CASE("a change whose event was lost is seen all the same", "[sync][watch]") {
    interrupt::raise_for_test();
    interrupt::clear_for_test();
    test::TemporaryFolder tree;
    auto watcher = sync::Watcher::make(true);
    REQUIRE(watcher);
    REQUIRE(watcher->look(tree.path()));
    int kept = 0;
    std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> kept;
    REQUIRE(kept > 0);
    // Names that mean nothing fill the queue, so that nothing but the loss itself can tell.
    const std::string one = tree / ".tnr-abcdefgh-1", other = tree / ".tnr-abcdefgh-2";
    test::write_text(one, "");
    for (int i = 0; i <= kept; i += 4) {
        fs::rename(one, other);
        fs::rename(other, one);
    }
    fs::create_directory(tree / "lost");
    auto waited = std::async(std::launch::async, [&] { return watcher->wait(); });
    if (waited.wait_for(60s) != std::future_status::ready) interrupt::raise_for_test();
    CHECK(waited.get());
    interrupt::clear_for_test();
    REQUIRE(watcher->look(tree.path()));
    auto again = std::async(std::launch::async, [&] { return watcher->wait(); });
    test::write_text(tree / "lost/file", "in a folder that no event has told of");
    if (again.wait_for(60s) != std::future_status::ready) interrupt::raise_for_test();
    CHECK(again.get());
    interrupt::clear_for_test();
}

TEST_CASE("sync --watch brings what editors, git and rm do", "[cli][sync][watch]") {
    SyncWorld world;
    fs::create_directory(world.tree + "/many");
    const std::string in_tree = "cd '" + world.tree + "' && ";
    const std::string git = in_tree + "HOME=" + world.fake.folder.path() +
                            " GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b";
    if (have("git"))
        REQUIRE(runs(git + "; export HOME GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL; "
                           "git init -q . && git add . && git commit -qm one && git checkout -qb many && "
                           "for i in $(seq 1500); do echo $i >many/$i; done && git add . && git commit -qm two && "
                           "git checkout -q -"));
    Watching watching(world, {"sync", "-w", "--delete", world.tree, world.to()});
    auto same = [&] {
        return comes_true([&] { return runs("diff -r --no-dereference '" + world.tree + "' '" + world.copy + "'"); });
    };
    REQUIRE(same());
    auto after = [&](const std::string& program, const std::string& line) {
        INFO(line);
        if (!have(program)) {
            WARN("there is no " + program + " here: not tried");
            return;
        }
        REQUIRE(runs(in_tree + line));
        CHECK(same());
    };
    // Over the old file; beside it, and renamed over it; the old one renamed away, and written anew.
    for (const std::string how : {"yes", "no", "auto"})
        after("vim", "vim -u NONE -es -c 'set backup swapfile writebackup backupcopy=" + how + "' -c 'normal ovim " +
                         how + "' -c wq a && grep 'vim " + how + "' a");
    after("emacs", "emacs --batch -Q a --eval '(progn (insert \"emacs\") (save-buffer))' && grep emacs a");
    after("sed", "sed -i s/b/B/ sub/b");
    after("perl", "perl -pi.orig -e s/B/b/ sub/b");
    after("git", "git checkout -q many && test -e many/1500");
    after("git", "git checkout -q - && test ! -e many/1500");
    after("cp", "cp -a . ../kept && rm -rf ./* && sleep 0.3 && cp -a ../kept/. .");
    after("mv", "mv sub ../away && mkdir sub && echo new >sub/b && mv ../away sub/");
    after("ln", "ln -s a next && mv -T next sub/link && ln -sfn sub/b sub/link");
}
