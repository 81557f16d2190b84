// Blocks of messages. A block is: how many bytes follow (the top bit: compressed), how many they are unpacked, the bytes.
#include "cli/sync/engine/frames.hpp"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "api_client/base/handles.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr::sync {
namespace {

constexpr size_t header_bytes = 8;
constexpr size_t number_bytes_max = 10;
constexpr uint32_t compressed_flag = uint32_t{1} << 31;
// Fast enough to be no brake on a gigabit line; what is worth more is the user's to compress.
constexpr int compression_level = 1;
// Of blocks that would rather not be compressed, one in so many is, to see whether that has changed; and the first few.
constexpr unsigned look_every = 16, looks_at_first = 4;
// What cannot be made smaller than this is sent as it is.
constexpr double left_max = 0.9;
// Seconds a byte of a gigabit line: what is thought of a line that nothing is known of.
constexpr double gigabit = 8e-9;

void put_u32(char* at, uint32_t value) {
    for (int i = 0; i < 4; ++i) at[i] = static_cast<char>(value >> (8 * i));
}

uint32_t get_u32(const char* at) {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(at[i])} << (8 * i);
    return value;
}

void put_number(std::string& bytes, uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
}

// False: incomplete or too long.
bool take_number(std::string_view& bytes, uint64_t& value) {
    value = 0;
    for (unsigned shift = 0, used = 0; used < bytes.size() && shift < 64; shift += 7) {
        auto byte = static_cast<unsigned char>(bytes[used++]);
        if (shift == 63 && byte > 1) return false;
        value |= uint64_t{byte & 0x7fu} << shift;
        if (byte & 0x80) continue;
        bytes.remove_prefix(used);
        return true;
    }
    return false;
}

bool write_both(int fd, std::string_view head, std::string_view body) {
    while (!head.empty() || !body.empty()) {
        iovec parts[] = {{const_cast<char*>(head.data()), head.size()}, {const_cast<char*>(body.data()), body.size()}};
        ssize_t took = ::writev(fd, parts, 2);
        if (took < 0 && errno == EINTR) continue;
        if (took < 0) return false;
        size_t of_head = std::min(static_cast<size_t>(took), head.size());
        head.remove_prefix(of_head);
        body.remove_prefix(static_cast<size_t>(took) - of_head);
    }
    return true;
}

Error not_understood() {
    return {Error::Kind::remote, "the other end of the sync sent what is no message of ours"};
}

double seconds_since(std::chrono::steady_clock::time_point begun) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// Of this thread's work alone: on a busy computer waiting for a turn is no reason to send more.
double seconds_worked() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Whether much waits in the line's own buffer: then there is time to make the next block smaller.
bool is_behind(int fd) {
    pollfd line{fd, POLLOUT, 0};
    return ::poll(&line, 1, 0) == 0;
}

}  // namespace

Message& Message::number(uint64_t value) {
    put_number(bytes_, value);
    return *this;
}

Message& Message::text(std::string_view value) {
    put_number(bytes_, value.size());
    bytes_ += value;
    return *this;
}

Message& Message::time(int64_t seconds, uint32_t nanoseconds) {
    return number(static_cast<uint64_t>(seconds)).number(nanoseconds);
}

uint64_t Fields::number() {
    uint64_t value = 0;
    if (!good_ || !take_number(bytes_, value)) good_ = false;
    return good_ ? value : 0;
}

std::string_view Fields::text() {
    uint64_t size = number();
    if (size > bytes_.size()) good_ = false;
    if (!good_) return {};
    std::string_view value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return value;
}

uint32_t Fields::nanoseconds() {
    uint64_t value = number();
    if (value >= 1'000'000'000) good_ = false;
    return good_ ? static_cast<uint32_t>(value) : 0;
}

// Decides from what the last blocks took: seconds a byte to send it, to compress it, and what is left of it then. Buffers swallow
// megabytes at once, however slow the line behind them is, so sending is not quickly believed to be fast. Compressing is
// quickly believed to be fast: the first block meets cold caches and memory that was never touched.
struct Outbox::Press {
    Handle<ZSTD_CCtx, ZSTD_freeCCtx> context{ZSTD_createCCtx()};
    std::string packed = std::string(ZSTD_compressBound(block_bytes_max), '\0');
    double sending = gigabit, compressing = 0, left = 0.5;
    unsigned block = 0;

    static void learn(double& average, double value, double weight = 0.25) {
        average = average == 0 ? value : average * (1 - weight) + value * weight;
    }
    bool worth_it(int fd) {
        if (++block <= looks_at_first || block % look_every == 0) return true;
        return left < left_max && (compressing <= sending * (1 - left) || is_behind(fd));
    }
};

Outbox::Outbox(int fd) : fd_(fd), press_(std::make_unique<Press>()) {
    interrupt::SignalsBlocked blocked;
    thread_ = std::thread([this] { work(); });
}

Outbox::~Outbox() {
    {
        LockGuard lock(mutex_);
        leaving_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

bool Outbox::send(const Message& message, std::string_view content) {
    std::string length, content_length;
    if (!content.empty()) put_number(content_length, content.size());
    put_number(length, message.bytes().size() + content_length.size() + content.size());
    UniqueLock lock(mutex_);
    changed_.wait(mutex_,
                  [&]() TNR_REQUIRES(mutex_) { return waiting_.size() < outbox_bytes_max || failed_ || leaving_; });
    if (failed_ || leaving_) return false;
    waiting_ += length;
    waiting_ += message.bytes();
    waiting_ += content_length;
    waiting_ += content;
    if (!sending_) changed_.notify_all();
    return true;
}

void Outbox::finish() {
    UniqueLock lock(mutex_);
    changed_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return (waiting_.empty() && !sending_) || failed_; });
}

void Outbox::work() {
    std::string taken;
    for (;;) {
        {
            UniqueLock lock(mutex_);
            sending_ = false;
            changed_.notify_all();
            changed_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return !waiting_.empty() || leaving_; });
            if (leaving_) return;
            taken.swap(waiting_);
            waiting_.clear();
            sending_ = true;
            changed_.notify_all();
        }
        bool good = true;
        for (size_t at = 0; good && at < taken.size(); at += block_bytes_max)
            good = write_block(std::string_view(taken).substr(at, block_bytes_max));
        if (good) continue;
        LockGuard lock(mutex_);
        failed_ = true;
        sending_ = false;
        changed_.notify_all();
        return;
    }
}

bool Outbox::write_block(std::string_view raw) {
    std::string_view stored = raw;
    double bytes = static_cast<double>(raw.size());
    if (press_->worth_it(fd_)) {
        std::string& packed = press_->packed;
        double begun = seconds_worked();
        size_t size = ZSTD_compressCCtx(press_->context.get(), packed.data(), packed.size(), raw.data(), raw.size(),
                                        compression_level);
        if (!ZSTD_isError(size) && size < raw.size()) stored = {packed.data(), size};
        double took = (seconds_worked() - begun) / bytes;
        if (took < press_->compressing) press_->compressing = took;
        Press::learn(press_->compressing, took);
        Press::learn(press_->left, static_cast<double>(stored.size()) / bytes);
    }
    bool compressed = stored.data() != raw.data();
    char header[header_bytes];
    put_u32(header, static_cast<uint32_t>(stored.size()) | (compressed ? compressed_flag : 0));
    put_u32(header + 4, static_cast<uint32_t>(raw.size()));
    auto begun = std::chrono::steady_clock::now();
    bool good = write_both(fd_, {header, sizeof header}, stored);
    Press::learn(press_->sending, seconds_since(begun) / static_cast<double>(stored.size()), 1.0 / look_every);
    bytes_sent_ += header_bytes + stored.size();
    return good;
}

struct Inbox::Unpacker {
    Handle<ZSTD_DCtx, ZSTD_freeDCtx> context{ZSTD_createDCtx()};
};

Inbox::Inbox(int fd)
    : fd_(fd),
      unpacker_(std::make_unique<Unpacker>()),
      stored_(block_bytes_max),
      raw_(number_bytes_max + message_bytes_max + block_bytes_max) {}
Inbox::~Inbox() = default;

Result<> Inbox::read_exactly(char* to, size_t count) {
    while (count > 0) {
        ssize_t got = ::read(fd_, to, count);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return Error{Error::Kind::network, "the other end of the sync has gone"};
        to += got;
        count -= static_cast<size_t>(got);
        bytes_received_ += static_cast<uint64_t>(got);
    }
    return Ok{};
}

Result<> Inbox::read_block() {
    char header[header_bytes];
    if (auto read = read_exactly(header, sizeof header); !read) return read;
    uint32_t stored = get_u32(header) & ~compressed_flag, raw = get_u32(header + 4);
    bool compressed = get_u32(header) & compressed_flag;
    if (raw == 0 || raw > block_bytes_max || stored > raw || (!compressed && stored != raw)) return not_understood();
    // What is left is the beginning of a message.
    std::memmove(raw_.data(), raw_.data() + at_, end_ - at_);
    end_ -= at_;
    at_ = 0;
    char* to = raw_.data() + end_;
    end_ += raw;
    if (!compressed) return read_exactly(to, raw);
    if (auto read = read_exactly(stored_.data(), stored); !read) return read;
    size_t unpacked = ZSTD_decompressDCtx(unpacker_->context.get(), to, raw, stored_.data(), stored);
    if (ZSTD_isError(unpacked) || unpacked != raw) return not_understood();
    return Ok{};
}

Result<Inbox::Received> Inbox::next() {
    for (;;) {
        std::string_view left(raw_.data() + at_, end_ - at_);
        uint64_t length = 0;
        std::string_view rest = left;
        bool known = take_number(rest, length);
        if (!known && left.size() >= number_bytes_max) return not_understood();
        if (known && (length == 0 || length > message_bytes_max)) return not_understood();
        if (known && rest.size() >= length) {
            at_ += (left.size() - rest.size()) + length;
            return Received{static_cast<uint8_t>(rest[0]), rest.substr(1, length - 1)};
        }
        if (auto read = read_block(); !read) return read.error();
    }
}

}  // namespace tnr::sync
