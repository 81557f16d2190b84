// SFTP version 3 (the one every server speaks), as a client that keeps many requests in flight.
//
// libssh2 has an SFTP client too, but it allows one open or rename at a time, which makes thousands of small files
// take thousands of round trips, and its rename cannot replace a file. So libssh2 carries the channel here and the
// requests are ours: each takes a function that hears the reply. OpenSSH answers in the order of asking, and obeys
// in that order too.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/ssh/channel.hpp"

namespace tnr::ssh {

struct Attributes {
    std::optional<uint64_t> size;
    std::optional<uint32_t> mode;   // with the file type's bits, as in stat
    std::optional<uint32_t> mtime;  // seconds; the protocol has no finer ones
};

struct Entry {
    std::string name;
    Attributes attributes;
};

enum class Status : uint32_t { ok = 0, end = 1, no_such_file = 2, permission_denied = 3, failure = 4, unsupported = 8 };

struct Reply {
    Status status = Status::ok;
    std::string message;       // the server's words when status is not ok
    std::string bytes;         // a handle or a file's content
    Attributes attributes;     // of stat and lstat
    std::vector<Entry> names;  // of read_folder, real_path and read_link
    bool ok() const { return status == Status::ok; }
};
using Done = std::function<void(Reply)>;

// READ; WRITE CREAT TRUNC; WRITE alone, for a file that is there and goes on
enum class Open : uint32_t { read = 0x01, write_new = 0x02 | 0x08 | 0x10, write_on = 0x02 };

// How much of a file one request carries: what every server must accept.
inline constexpr size_t sftp_piece_bytes = 32768;
// Requests in flight before new ones should wait. 64 pieces are 2 MiB: 400 Mb/s at 40 ms.
inline constexpr size_t sftp_in_flight_max = 64;
// A server that answers nothing for this long is given up.
inline constexpr std::chrono::seconds sftp_silence_limit{60};

// Not thread-safe. Replies are heard inside turn() and settle() only; a Done may send further requests.
class Sftp {
public:
    static Result<std::unique_ptr<Sftp>> open(Client& client);

    void open_file(const std::string& path, Open how, Done done);
    void close(const std::string& handle, Done done);
    void read(const std::string& handle, uint64_t offset, uint32_t length, Done done);
    void write(const std::string& handle, uint64_t offset, std::string_view bytes, Done done);
    void stat(const std::string& path, Done done);   // follows links
    void lstat(const std::string& path, Done done);  // does not
    void stat_handle(const std::string& handle, Done done);
    void set_attributes(const std::string& path, const Attributes& attributes, Done done);
    void set_handle_attributes(const std::string& handle, const Attributes& attributes, Done done);
    void open_folder(const std::string& path, Done done);
    void read_folder(const std::string& handle, Done done);
    void make_folder(const std::string& path, uint32_t mode, Done done);
    void remove(const std::string& path, Done done);
    void remove_folder(const std::string& path, Done done);                       // an empty one
    void rename_over(const std::string& from, const std::string& to, Done done);  // replaces `to` in one step
    void make_link(const std::string& path, const std::string& leads_to, Done done);
    void read_link(const std::string& path, Done done);
    void real_path(const std::string& path, Done done);
    // Whether the file system that holds `path` has (as good as) no space left.
    void is_full(const std::string& path, std::function<void(bool)> done);

    Client& client() { return client_; }
    size_t in_flight() const { return waiting_.size(); }
    bool crowded() const { return waiting_.size() >= sftp_in_flight_max; }

    // Sends and receives until at least one reply was heard (or none is expected).
    Result<> turn();
    // Until every reply was heard. `patience` bounds the silence, for goodbyes.
    Result<> settle(std::chrono::seconds patience = sftp_silence_limit);

private:
    Sftp(Client& client, Channel channel) : client_(client), channel_(std::move(channel)) {}
    Result<> greet();
    void request(uint8_t type, const std::string& body, Done done);
    Result<bool> move();
    Result<> take_packets();
    Result<> hear(const std::string& packet);
    Result<> turn_within(std::chrono::seconds patience);

    Client& client_;
    Channel channel_;
    std::string out_, in_;
    size_t out_sent_ = 0;
    uint32_t next_id_ = 1;
    std::map<uint32_t, Done> waiting_;
    bool heard_ = false;
};

}  // namespace tnr::ssh
