// The stream between the two ends of a sync: messages, packed into blocks, over a pair of descriptors.
//
// A message is a type and some fields. Nobody flushes: while one block is on its way, messages gather for the next, so that
// few large messages and many small ones both fill the line. A block is compressed where that is faster than sending it
// as it is. What comes in is from a stranger: every length has a limit, and nothing is kept that was not sent.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "api_client/base/result.hpp"

namespace tnr::sync {

// The two ends agree on this before anything else. It grows with every change of messages.hpp: the server is always the
// one that this tnr carries, so that no two versions ever have to understand each other.
inline constexpr std::string_view greeting = "tnr-sync 2\n";

// A block before compression. Zstandard finds most of what small files have in common within it.
inline constexpr size_t block_bytes_max = size_t{256} << 10;
// One message; longer contents are several. The longest are a folder's rules.
inline constexpr size_t message_bytes_max = size_t{512} << 10;
// What waits to be sent. Whoever has more waits as well.
inline constexpr size_t outbox_bytes_max = size_t{2} << 20;

// A message to be sent: its type, then its fields in the order that messages.hpp writes down.
class Message {
public:
    explicit Message(uint8_t type) : bytes_(1, static_cast<char>(type)) {}
    Message& number(uint64_t value);
    Message& text(std::string_view value);
    Message& time(int64_t seconds, uint32_t nanoseconds);
    const std::string& bytes() const { return bytes_; }

private:
    std::string bytes_;
};

// Reads a message's fields. What is missing or too long reads as zero or empty, and makes good() false.
class Fields {
public:
    explicit Fields(std::string_view bytes) : bytes_(bytes) {}
    uint64_t number();
    std::string_view text();
    int64_t seconds() { return static_cast<int64_t>(number()); }
    uint32_t nanoseconds();
    // Everything was there, and nothing is left.
    bool good() const { return good_ && bytes_.empty(); }

private:
    std::string_view bytes_;
    bool good_ = true;
};

// Sends messages in a thread of its own. send() may be called by any thread.
class Outbox {
public:
    explicit Outbox(int fd);
    ~Outbox();  // what waits is thrown away unless finish() was called
    Outbox(const Outbox&) = delete;

    // Waits while too much is unsent. False: the other end takes nothing more. `content` follows the fields as a last one.
    bool send(const Message& message, std::string_view content = {}) TNR_EXCLUDES(mutex_);
    // Waits until everything has been sent.
    void finish() TNR_EXCLUDES(mutex_);
    uint64_t bytes_sent() const { return bytes_sent_; }

private:
    void work() TNR_EXCLUDES(mutex_);
    bool write_block(std::string_view raw);
    struct Press;

    const int fd_;
    std::unique_ptr<Press> press_;  // the thread's own
    std::atomic<uint64_t> bytes_sent_{0};
    Mutex mutex_;
    Condition changed_;  // of all that is guarded
    std::string waiting_ TNR_GUARDED_BY(mutex_);
    bool sending_ TNR_GUARDED_BY(mutex_) = false;
    bool leaving_ TNR_GUARDED_BY(mutex_) = false;
    bool failed_ TNR_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

// Receives messages. One thread's.
class Inbox {
public:
    explicit Inbox(int fd);
    ~Inbox();

    struct Received {
        uint8_t type = 0;
        std::string_view fields;  // until the next call
    };
    // Waits for the next one. Kind network: the other end has gone; remote: what it sent is no message of ours.
    Result<Received> next();
    uint64_t bytes_received() const { return bytes_received_; }

private:
    Result<> read_block();
    Result<> read_exactly(char* to, size_t count);
    struct Unpacker;

    const int fd_;
    std::unique_ptr<Unpacker> unpacker_;
    std::vector<char> stored_, raw_;
    size_t at_ = 0, end_ = 0;  // of raw_: from where it has not been taken, and to where it is filled
    std::atomic<uint64_t> bytes_received_{0};
};

}  // namespace tnr::sync
