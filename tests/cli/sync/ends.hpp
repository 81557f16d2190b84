// Both ends of a sync in one process, over a pair of sockets; or one of them, with whatever a test says instead of the other.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <new>
#include <random>

#include "api_client/base/handles.hpp"
#include "cli/sync/engine/delta.hpp"
#include "cli/sync/engine/messages.hpp"
#include "cli/sync/engine/session.hpp"
#include "cli/sync/engine/tree.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/files.hpp"

namespace tnr::test::ends {

namespace fs = std::filesystem;

// Made by any thread, so without Catch2, which only knows one.
struct Pair {
    UniqueFd one, other;
    Pair() {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) throw std::bad_alloc();
        one.reset(pair[0]), other.reset(pair[1]);
    }
};

inline sync::Link link_of(const UniqueFd& fd) {
    return {fd.get(), fd.get(), [&fd] { ::shutdown(fd.get(), SHUT_RDWR); }};
}

using EndRun = Result<sync::Tally> (*)(const sync::Link&, sync::Inbox&, sync::Outbox&, const sync::SyncSettings&,
                                       sync::Counters&);

inline Result<sync::Tally> run_end(EndRun run, const UniqueFd& fd, const sync::SyncSettings& settings) {
    sync::Link link = link_of(fd);
    sync::Inbox inbox(link.in);
    sync::Outbox outbox(link.out);
    sync::Counters counters;
    auto done = run(link, inbox, outbox, settings, counters);
    ::shutdown(fd.get(), SHUT_RDWR);
    return done;
}

struct Ended {
    Result<sync::Tally> sender, receiver;
};

// A download: the receiver is the user's. Each end has a descriptor of its own, between which a test may put a line of its
// kind. Any thread may call it.
inline Ended both_ends(sync::SyncSettings settings, const UniqueFd& at_sender, const UniqueFd& at_receiver) {
    sync::SyncSettings there = settings;
    there.here = false;
    there.machine = settings.machine = "m";
    auto sent = std::async(std::launch::async, [&] { return run_end(&sync::send_tree, at_sender, there); });
    auto received = run_end(&sync::receive_tree, at_receiver, settings);
    return {sent.get(), received};
}

inline Result<sync::Tally> download_over(const sync::SyncSettings& settings, const UniqueFd& at_sender,
                                         const UniqueFd& at_receiver) {
    auto [sent, received] = both_ends(settings, at_sender, at_receiver);
    CHECK(static_cast<bool>(sent) == static_cast<bool>(received));
    if (sent && received) CHECK(sent->files == received->files);
    return received;
}

inline Result<sync::Tally> download(const sync::SyncSettings& settings) {
    Pair pair;
    return download_over(settings, pair.one, pair.other);
}

inline sync::Tally downloaded(const sync::SyncSettings& settings) {
    auto tally = download(settings);
    if (!tally) FAIL(tally.error().what);
    return *tally;
}

inline std::string random_bytes(size_t count, unsigned seed = 1) {
    std::mt19937_64 random(seed);
    std::string bytes(count, '\0');
    for (size_t i = 0; i + 8 <= count; i += 8) {
        uint64_t value = random();
        std::memcpy(bytes.data() + i, &value, sizeof value);
    }
    return bytes;
}

inline size_t names_in(const std::string& folder) {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

inline sync::Message message(sync::Says says) {
    return sync::Message(static_cast<uint8_t>(says));
}

inline sync::Message entry(uint64_t parent_and_one, const std::string& name, sync::Kind kind,
                           const std::string& leads_to = "", uint64_t size = 1) {
    return message(sync::Says::entry)
        .number(parent_and_one)
        .text(name)
        .number(static_cast<uint64_t>(kind))
        .number(size)
        .number(0644)
        .number(0)
        .time(1, 0)
        .text(leads_to);
}

inline sync::Message small(uint64_t index, const std::string& content) {
    return message(sync::Says::small)
        .number(index)
        .number(0644)
        .time(1, 0)
        .text(sync::digest_of(content))
        .text(content);
}

// A receiver that hears exactly these messages.
inline Result<sync::Tally> receive_from(const std::vector<sync::Message>& messages, const std::string& to) {
    Pair pair;
    auto hostile = std::async(std::launch::async, [&] {
        sync::Outbox outbox(pair.one.get());
        for (const auto& each : messages) outbox.send(each);
        outbox.finish();
        ::shutdown(pair.one.get(), SHUT_WR);
        char bytes[4096];
        while (::read(pair.one.get(), bytes, sizeof bytes) > 0) {
        }
    });
    sync::SyncSettings settings{"source", to, "m"};
    auto received = run_end(&sync::receive_tree, pair.other, settings);
    hostile.get();
    return received;
}

}  // namespace tnr::test::ends
