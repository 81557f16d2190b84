// What goes over the line between the two ends: how many bytes, and how often one waits for the other.
#include <poll.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/cli/sync/ends.hpp"

using namespace tnr;
using namespace tnr::test::ends;

namespace {

// A slow line. It takes all that both ends say until they have nothing more to say, and only then brings it to them: one
// exchange. So exchanges count how often anybody has waited for an answer, however fast this computer is.
class Line {
public:
    Line() : carrier_([this] { carry(); }) {}
    ~Line() { join(); }
    const UniqueFd& sender() const { return left_.one; }
    const UniqueFd& receiver() const { return right_.one; }
    void join() {
        if (carrier_.joinable()) carrier_.join();
    }
    size_t exchanges = 0, bytes = 0;

private:
    static constexpr int quiet_ms = 40;

    void carry() {
        std::array<std::string, 2> said;  // by the sender, by the receiver
        for (size_t ended = 0; ended < 2;) {
            pollfd ends[] = {{left_.other.get(), POLLIN, 0}, {right_.other.get(), POLLIN, 0}};
            int ready = ::poll(ends, 2, said[0].empty() && said[1].empty() ? -1 : quiet_ms);
            if (ready == 0) bring(said);
            for (size_t i = 0; ready > 0 && i < 2; ++i) {
                if (ends[i].revents == 0 || hear(ends[i].fd, said[i])) continue;
                bring(said);
                ended = 2;
            }
        }
        ::shutdown(left_.other.get(), SHUT_RDWR);
        ::shutdown(right_.other.get(), SHUT_RDWR);
    }

    bool hear(int fd, std::string& said) {
        char piece[65536];
        ssize_t got = ::read(fd, piece, sizeof piece);
        if (got <= 0) return false;
        said.append(piece, static_cast<size_t>(got));
        bytes += static_cast<size_t>(got);
        return true;
    }

    void bring(std::array<std::string, 2>& said) {
        ++exchanges;
        put(right_.other.get(), said[0]);
        put(left_.other.get(), said[1]);
    }
    static void put(int fd, std::string& what) {
        for (size_t at = 0; at < what.size();) {
            ssize_t took = ::send(fd, what.data() + at, what.size() - at, MSG_NOSIGNAL);
            if (took <= 0) break;
            at += static_cast<size_t>(took);
        }
        what.clear();
    }

    Pair left_, right_;
    std::thread carrier_;
};

// Takes a megabyte a second, which any build of ours on a busy machine can send, and counts: what is sent over it is worth
// compressing.
class Trickle {
public:
    Trickle()
        : up_([this] { carry(left_.other, right_.other, true); }),
          down_([this] { carry(right_.other, left_.other, false); }) {}
    ~Trickle() {
        up_.join();
        down_.join();
    }
    const UniqueFd& sender() const { return left_.one; }
    const UniqueFd& receiver() const { return right_.one; }
    std::atomic<size_t> bytes{0};

private:
    void carry(const UniqueFd& from, const UniqueFd& to, bool slowly) {
        char piece[8192];
        for (ssize_t got; (got = ::read(from.get(), piece, sizeof piece)) > 0;) {
            if (slowly) ::usleep(8000);
            bytes += static_cast<size_t>(got);
            if (::send(to.get(), piece, static_cast<size_t>(got), MSG_NOSIGNAL) != got) break;
        }
        ::shutdown(to.get(), SHUT_RDWR);
        ::shutdown(from.get(), SHUT_RDWR);
    }

    Pair left_, right_;
    std::thread up_, down_;
};

}  // namespace

TEST_CASE("thousands of files take a handful of exchanges", "[sync][engine][line]") {
    test::TemporaryFolder from, to;
    constexpr size_t folders = 30, files = 100;
    for (size_t i = 0; i < folders; ++i) {
        std::string folder = from / ("tree/" + std::to_string(i));
        fs::create_directories(folder);
        for (size_t k = 0; k < files; ++k) test::write_text(folder + "/" + std::to_string(k), std::string(k, 'x'));
    }
    auto exchanges = [&] {
        Line line;
        auto tally = download_over({from / "tree", to / "tree"}, line.sender(), line.receiver());
        if (!tally) FAIL(tally.error().what);
        line.join();
        return line.exchanges;
    };
    // Four, when nothing else is at work here; an end that gets no turn for a while looks as if it waited.
    CHECK(exchanges() <= 40);
    CHECK(names_in(to / "tree/29") == files);
    CHECK(exchanges() <= 40);
}

// Much more than all buffers take at once, and than is sent before what compressing costs here is known.
TEST_CASE("on a slow line what can be compressed is", "[sync][engine][line]") {
    test::TemporaryFolder from, to;
    fs::create_directories(from / "tree");
    std::string words;
    for (int i = 0; words.size() < 20'000; ++i) words += "    return counted(" + std::to_string(i % 97) + ", tally);\n";
    size_t content = 0;
    for (int i = 0; i < 600; ++i, content += words.size())
        test::write_text(from / ("tree/" + std::to_string(i)), words);
    Trickle line;
    auto tally = download_over({from / "tree", to / "tree"}, line.sender(), line.receiver());
    if (!tally) FAIL(tally.error().what);
    CHECK(tally->bytes == content);
    CHECK(line.bytes < content / 2);
    CHECK(test::read_text(to / "tree/599") == words);
}
