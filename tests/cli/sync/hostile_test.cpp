// Each end of a sync with a hostile other end.
#include "tests/cli/sync/ends.hpp"

using namespace tnr;
using namespace tnr::test::ends;

TEST_CASE("a hostile machine cannot make a download write outside its destination", "[sync][engine][hostile]") {
    test::TemporaryFolder world;
    fs::create_directories(world / "to");
    test::write_text(world / "victim", "mine");
    auto root = entry(0, "", sync::Kind::folder);
    auto end = message(sync::Says::list_end).number(0).number(0);
    auto untouched = [&] {
        CHECK(test::read_text(world / "victim") == "mine");
        CHECK(names_in(world.path()) == 2);
    };
    SECTION("names that lead out") {
        for (const auto& name : std::vector<std::string>{"..", ".", "", "../victim", "/etc/x", "a/b",
                                                         std::string("a\0b", 3), std::string(300, 'a')}) {
            auto tally = receive_from({root, entry(1, name, sync::Kind::file), end, small(1, "evil")}, world / "to");
            CHECK_FALSE(tally);
            (void)receive_from(
                {root, entry(1, name, sync::Kind::folder), entry(2, "victim", sync::Kind::file), end, small(2, "evil")},
                world / "to");
            untouched();
        }
    }
    SECTION("a link, and then a folder or a file of the same name") {
        for (auto kind : {sync::Kind::folder, sync::Kind::file}) {
            std::vector<sync::Message> messages = {root,
                                                   entry(1, "l", sync::Kind::link, ".."),
                                                   entry(1, "l", kind),
                                                   entry(3, "victim", sync::Kind::file),
                                                   end,
                                                   small(3, "evil"),
                                                   small(2, "x")};
            (void)receive_from(messages, world / "to");
            untouched();
        }
        (void)receive_from(
            {root, entry(1, "l", sync::Kind::link, ".."), entry(2, "victim", sync::Kind::file), end, small(2, "evil")},
            world / "to");
        untouched();
    }
    SECTION("a link that an earlier sync has left") {
        fs::create_symlink("..", world / "to/l");
        auto tally = receive_from(
            {root, entry(1, "l", sync::Kind::folder), entry(2, "victim", sync::Kind::file), end, small(2, "evil")},
            world / "to");
        REQUIRE_FALSE(tally);
        CHECK(tally.error().what.find("is a link here") != std::string::npos);
        untouched();
        // A file over a link replaces the link.
        fs::remove(world / "to/l");
        fs::create_symlink("../victim", world / "to/f");
        CHECK(receive_from({root, entry(1, "f", sync::Kind::file), end, small(1, "new")}, world / "to"));
        CHECK(test::read_text(world / "to/f") == "new");
        CHECK_FALSE(fs::is_symlink(world / "to/f"));
        untouched();
    }
    SECTION("a folder that is replaced by a link while files for it arrive") {
        (void)receive_from({root, entry(1, "d", sync::Kind::folder), entry(2, "victim", sync::Kind::file),
                            entry(1, "d", sync::Kind::link, ".."), end, small(2, "evil")},
                           world / "to");
        untouched();
    }
}

TEST_CASE("what a sender may not say ends the sync", "[sync][engine][hostile]") {
    test::TemporaryFolder world;
    auto root = entry(0, "", sync::Kind::folder), file = entry(1, "f", sync::Kind::file);
    auto end = message(sync::Says::list_end).number(0).number(0);
    auto begin = message(sync::Says::begin).number(1).number(1000).number(0600).time(1, 0);
    auto data = message(sync::Says::data).text("xxxx");
    std::vector<std::vector<sync::Message>> wrong = {
        {file},                                                                            // no root
        {root, root},                                                                      // two
        {root, entry(5, "f", sync::Kind::file)},                                           // no such folder
        {root, file, entry(2, "g", sync::Kind::file)},                                     // a file is no folder
        {root, file, end, end},                                                            // two ends
        {root, file, end, small(0, "x")},                                                  // not asked for
        {root, file, end, small(7, "x")},                                                  // not there
        {root, file, entry(1, "g", sync::Kind::file), end, small(1, "x"), small(1, "x")},  // once is enough
        {root, file, end, data},                                                           // of what?
        {root, file, end, begin, message(sync::Says::copy).number(0).number(10)},          // there is no old file
        {root, file, end, begin, message(sync::Says::zeros).number(UINT64_MAX)},           // beyond its end
        {root, file, end, begin, message(sync::Says::zeros).number(1001)},
        {root, file, end, begin, message(sync::Says::patch).number(0).number(0).text("no delta at all")},  // no delta
        {root, file, end, begin, message(sync::Says::end).text("0123456789abcdef")},                       // not whole
        {root, file, end, begin, message(sync::Says::sign).number(1).number(0)},  // nothing to sign
        {root, file, end, message(sync::Says::done).number(0).number(0).number(0).number(0)},
        {message(static_cast<sync::Says>(200))},
        {root, message(sync::Says::rules).number(9).text("").text("").text("")},
        {root, message(sync::Says::rules).number(0).text(std::string(5000, 'x')).text("*").text("")},
        {root, entry(1, "sub", sync::Kind::folder), message(sync::Says::rules).number(1).text("x").text("*").text("")},
        {root, entry(1, "l", sync::Kind::link, "")},
    };
    for (size_t i = 0; i < wrong.size(); ++i) {
        INFO(i);
        auto tally = receive_from(wrong[i], world / "to");
        REQUIRE_FALSE(tally);
        CHECK(tally.error().kind == Error::Kind::remote);
        fs::create_directories(world / "to");
        CHECK(names_in(world / "to") <= 1);  // at most the file, when it came before what was wrong
        fs::remove_all(world / "to");
    }
}

TEST_CASE("random bytes, and true ones cut off or bent anywhere, end either end without harm",
          "[sync][engine][hostile]") {
    std::mt19937 random(7);
    test::TemporaryFolder world;
    fs::create_directories(world / "source/sub");
    test::write_text(world / "source/a", "content");
    test::write_text(world / "source/sub/large", random_bytes(1 << 20));
    // What an honest end says, to be bent.
    std::string honest;
    {
        Pair pair;
        UniqueFd copy{::dup(pair.other.get())};
        sync::Outbox outbox(pair.one.get());
        for (const auto& each :
             {entry(0, "", sync::Kind::folder), entry(1, "a", sync::Kind::file, "", 7),
              message(sync::Says::list_end).number(0).number(0), small(1, "content"),
              message(sync::Says::want).number(1), message(sync::Says::compare).number(3).number(1 << 20).number(8192),
              message(sync::Says::blocks).number(3).number(1).text(random_bytes(512))})
            outbox.send(each);
        outbox.finish();
        honest.resize(8192);
        honest.resize(static_cast<size_t>(::read(pair.other.get(), honest.data(), honest.size())));
    }
    for (int round = 0; round < 200; ++round) {
        std::string bytes = round % 2 ? honest : random_bytes(64 + random() % 512, static_cast<unsigned>(round));
        for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
        if (round % 3 == 0) bytes.resize(random() % bytes.size());
        for (auto end : {&sync::receive_tree, &sync::send_tree}) {
            Pair pair;
            auto hostile = std::async(std::launch::async, [&] {
                (void)!::write(pair.one.get(), bytes.data(), bytes.size());
                ::shutdown(pair.one.get(), SHUT_WR);
                char taken[4096];
                while (::read(pair.one.get(), taken, sizeof taken) > 0) {
                }
            });
            sync::SyncSettings settings{world / "source", world / "to", "m"};
            (void)run_end(end, pair.other, settings);
            hostile.get();
        }
    }
    CHECK(test::read_text(world / "source/a") == "content");
    CHECK(names_in(world.path()) <= 2);
}

TEST_CASE("what a receiver may not ask for ends the sync", "[sync][engine][hostile]") {
    test::TemporaryFolder world;
    fs::create_directories(world / "source");
    test::write_text(world / "source/a", "content");
    auto want = message(sync::Says::want).number(1);
    std::vector<std::vector<sync::Message>> wrong = {
        {message(sync::Says::want).number(0)},  // a folder
        {message(sync::Says::want).number(100)},
        {want, want, want, want, want, want},
        {message(sync::Says::compare).number(1).number(1 << 20).number(1)},  // a block of one byte
        {message(sync::Says::blocks).number(1).number(1).text("12345678")},  // of what?
        {message(sync::Says::compare).number(1).number(1 << 20).number(8192),
         message(sync::Says::blocks).number(1).number(0).text(std::string(100'000, 'x'))},
        {message(sync::Says::signature).number(1).number(0).text("x")},
        {message(sync::Says::entry)},
    };
    for (size_t i = 0; i < wrong.size(); ++i) {
        INFO(i);
        Pair pair;
        auto hostile = std::async(std::launch::async, [&] {
            sync::Inbox inbox(pair.one.get());
            sync::Outbox outbox(pair.one.get());
            for (auto received = inbox.next(); received; received = inbox.next())
                if (received->type == static_cast<uint8_t>(sync::Says::list_end)) break;
            for (const auto& each : wrong[i]) outbox.send(each);
            while (inbox.next()) {
            }
        });
        auto sent = run_end(&sync::send_tree, pair.other, {world / "source", world / "to", "m"});
        hostile.get();
        REQUIRE_FALSE(sent);
        CHECK(sent.error().what.find("makes no sense") != std::string::npos);
    }
}
