// tnr-sync-server: the end of `tnr sync` on a machine. `tnr` brings it there and talks with it over its standard input and
// output; it is of no use by hand. It ends with its input, so nothing stays behind when a connection is cut.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/sync/engine/messages.hpp"
#include "cli/sync/engine/session.hpp"

int main() {
    using namespace tnr;
    std::signal(SIGPIPE, SIG_IGN);  // a client that has gone is an error of write()
    if (::isatty(STDIN_FILENO)) {
        std::fputs("tnr-sync-server works for `tnr sync`, which starts it by itself\n", stderr);
        return 2;
    }
    if (::write(STDOUT_FILENO, sync::greeting.data(), sync::greeting.size()) < 0) return 1;
    sync::Link link{STDIN_FILENO, STDOUT_FILENO, [] { ::_exit(1); }};
    sync::Inbox inbox(link.in);
    sync::Outbox outbox(link.out);
    auto first = inbox.next();
    sync::SyncSettings settings;
    settings.here = false;
    bool sends = false;
    if (!first || first->type != static_cast<uint8_t>(sync::Says::hello) ||
        !sync::read_hello(sync::Fields(first->fields), settings, sends))
        return 1;
    sync::Counters counters;
    auto done = sends ? sync::send_tree(link, inbox, outbox, settings, counters)
                      : sync::receive_tree(link, inbox, outbox, settings, counters);
    ::_exit(done ? 0 : 1);
}
