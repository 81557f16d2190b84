// Requests out, replies in, each to the function that waits for it.
#include "cli/ssh/sftp.hpp"

#include "api_client/base/interrupt.hpp"
#include "cli/ssh/sftp_packet.hpp"

namespace tnr::ssh {
namespace {

constexpr uint32_t protocol_version = 3;
constexpr std::chrono::seconds open_limit{30};

PacketWriter with(std::string_view text) {
    PacketWriter body;
    body.text(text);
    return body;
}

Error broken(const Client& client, const std::string& why) {
    return Error{Error::Kind::remote, "the SFTP server of '" + client.target().name + "' " + why};
}

}  // namespace

Result<std::unique_ptr<Sftp>> Sftp::open(Client& client) {
    Deadline deadline = Clock::now() + open_limit;
    auto channel = Channel::open(client, deadline);
    if (!channel) return channel.error();
    if (auto started = channel->start("subsystem", "sftp", deadline); !started) return started.error();
    std::unique_ptr<Sftp> sftp{new Sftp(client, std::move(*channel))};
    if (auto greeted = sftp->greet(); !greeted) return greeted.error();
    return sftp;
}

Result<> Sftp::greet() {
    PacketWriter hello;
    hello.number(5);
    hello.bytes += static_cast<char>(packet::init);
    hello.number(protocol_version);
    out_ = hello.bytes;
    Deadline deadline = Clock::now() + open_limit;
    while (in_.size() < 5 || in_.size() < PacketReader{in_}.number() + 4) {
        auto moved = move();
        if (!moved) return moved.error();
        if (!*moved && !client_.wire().wait(deadline)) return client_.failure("opening SFTP", LIBSSH2_ERROR_TIMEOUT);
        if (in_.size() > sftp_packet_bytes_max) return broken(client_, "does not speak SFTP");
    }
    PacketReader reply{in_};
    uint32_t length = reply.number();
    if (reply.byte() != packet::version || reply.number() < protocol_version)
        return broken(client_, "does not speak SFTP version 3");
    in_.erase(0, length + 4);
    return Ok{};
}

void Sftp::request(uint8_t type, const std::string& body, Done done) {
    PacketWriter whole;
    whole.number(static_cast<uint32_t>(body.size() + 5));
    whole.bytes += static_cast<char>(type);
    whole.number(next_id_);
    out_ += whole.bytes;
    out_ += body;
    waiting_.emplace(next_id_++, std::move(done));
}

void Sftp::open_file(const std::string& path, Open how, Done done) {
    Attributes attributes;
    if (how == Open::write_new) attributes.mode = 0600;  // nobody else reads it before its own mode is set
    request(packet::open, with(path).number(static_cast<uint32_t>(how)).attributes(attributes).bytes, std::move(done));
}
void Sftp::close(const std::string& handle, Done done) {
    request(packet::close, with(handle).bytes, std::move(done));
}
void Sftp::read(const std::string& handle, uint64_t offset, uint32_t length, Done done) {
    request(packet::read, with(handle).number64(offset).number(length).bytes, std::move(done));
}
void Sftp::write(const std::string& handle, uint64_t offset, std::string_view bytes, Done done) {
    request(packet::write, with(handle).number64(offset).text(bytes).bytes, std::move(done));
}
void Sftp::stat(const std::string& path, Done done) {
    request(packet::stat, with(path).bytes, std::move(done));
}
void Sftp::lstat(const std::string& path, Done done) {
    request(packet::lstat, with(path).bytes, std::move(done));
}
void Sftp::stat_handle(const std::string& handle, Done done) {
    request(packet::fstat, with(handle).bytes, std::move(done));
}
void Sftp::set_attributes(const std::string& path, const Attributes& attributes, Done done) {
    request(packet::setstat, with(path).attributes(attributes).bytes, std::move(done));
}
void Sftp::set_handle_attributes(const std::string& handle, const Attributes& attributes, Done done) {
    request(packet::fsetstat, with(handle).attributes(attributes).bytes, std::move(done));
}
void Sftp::open_folder(const std::string& path, Done done) {
    request(packet::opendir, with(path).bytes, std::move(done));
}
void Sftp::read_folder(const std::string& handle, Done done) {
    request(packet::readdir, with(handle).bytes, std::move(done));
}
void Sftp::make_folder(const std::string& path, uint32_t mode, Done done) {
    Attributes attributes;
    attributes.mode = mode;
    request(packet::mkdir, with(path).attributes(attributes).bytes, std::move(done));
}
void Sftp::remove(const std::string& path, Done done) {
    request(packet::remove, with(path).bytes, std::move(done));
}
void Sftp::remove_folder(const std::string& path, Done done) {
    request(packet::rmdir, with(path).bytes, std::move(done));
}
void Sftp::rename_over(const std::string& from, const std::string& to, Done done) {
    // The protocol's own rename fails when `to` exists.
    request(packet::extended, with("posix-rename@openssh.com").text(from).text(to).bytes, std::move(done));
}
void Sftp::make_link(const std::string& path, const std::string& leads_to, Done done) {
    // OpenSSH has the two the wrong way round, and has kept it so since everybody copes.
    request(packet::symlink, with(leads_to).text(path).bytes, std::move(done));
}
void Sftp::read_link(const std::string& path, Done done) {
    request(packet::readlink, with(path).bytes, std::move(done));
}
void Sftp::real_path(const std::string& path, Done done) {
    request(packet::realpath, with(path).bytes, std::move(done));
}
void Sftp::is_full(const std::string& path, std::function<void(bool)> done) {
    request(packet::extended, with("statvfs@openssh.com").text(path).bytes, [done = std::move(done)](Reply reply) {
        PacketReader in{reply.bytes};
        in.number64();                  // f_bsize
        uint64_t unit = in.number64();  // f_frsize
        in.number64(), in.number64();   // f_blocks, f_bfree
        uint64_t available = in.number64();
        in.number64(), in.number64();    // f_files, f_ffree
        uint64_t files = in.number64();  // f_favail
        constexpr uint64_t as_good_as_none = 256 << 10;
        done(reply.ok() && in.ok && (unit * available < as_good_as_none || files == 0));
    });
}

// Moves bytes both ways as far as they go without waiting; true if any did.
Result<bool> Sftp::move() {
    bool moved = false;
    while (out_sent_ < out_.size()) {
        ssize_t took = channel_.write(out_.data() + out_sent_, out_.size() - out_sent_);
        if (took < 0) return client_.failure("copying files", took);
        if (took == 0) break;
        out_sent_ += static_cast<size_t>(took);
        moved = true;
    }
    if (out_sent_ == out_.size() || out_sent_ > sftp_packet_bytes_max) {
        out_.erase(0, out_sent_);
        out_sent_ = 0;
    }
    char piece[sftp_piece_bytes];
    while (in_.size() <= 2 * sftp_packet_bytes_max) {
        ssize_t got = channel_.read(piece, sizeof piece);
        if (got < 0) return client_.failure("copying files", got);
        if (got == 0) break;
        in_.append(piece, static_cast<size_t>(got));
        moved = true;
    }
    if (!moved && channel_.eof()) return broken(client_, "ended in the middle of its work");
    return moved;
}

Result<> Sftp::take_packets() {
    size_t at = 0;
    while (in_.size() - at >= 4) {
        size_t length = PacketReader{std::string_view(in_).substr(at)}.number();
        if (length < 5 || length > sftp_packet_bytes_max) return broken(client_, "sent a packet of an impossible size");
        if (in_.size() - at - 4 < length) break;
        auto heard = hear(in_.substr(at + 4, length));
        if (!heard) return heard;
        at += 4 + length;
    }
    in_.erase(0, at);
    return Ok{};
}

Result<> Sftp::hear(const std::string& bytes) {
    PacketReader in{bytes};
    uint8_t type = in.byte();
    auto waiting = waiting_.find(in.number());
    if (waiting == waiting_.end()) return broken(client_, "answered what nobody asked");
    Done done = std::move(waiting->second);
    waiting_.erase(waiting);
    heard_ = true;
    done(parse_reply(type, in));
    return Ok{};
}

Result<> Sftp::turn_within(std::chrono::seconds patience) {
    heard_ = false;
    Deadline deadline = Clock::now() + patience;
    while (!heard_ && !waiting_.empty()) {
        auto moved = move();
        if (!moved) return moved.error();
        if (auto taken = take_packets(); !taken) return taken;
        if (interrupt::interrupted() && patience == sftp_silence_limit) return interrupt::error();
        if (*moved) deadline = Clock::now() + patience;
        if (heard_ || *moved) continue;
        if (client_.wire().wait(std::min(deadline, Clock::now() + client_.keep_alive()))) continue;
        if (!interrupt::interrupted() && Clock::now() < deadline && client_.listened()) continue;
        if (interrupt::interrupted() && Clock::now() < deadline && patience != sftp_silence_limit) {
            // Saying goodbye after Ctrl-C: the wake-up pipe stays readable, so wait on the socket alone.
            pollfd socket{client_.wire().fd(), POLLIN, 0};
            ::poll(&socket, 1, 50);
            continue;
        }
        return client_.failure("copying files", LIBSSH2_ERROR_TIMEOUT);
    }
    return Ok{};
}

Result<> Sftp::turn() {
    return turn_within(sftp_silence_limit);
}

Result<> Sftp::settle(std::chrono::seconds patience) {
    while (!waiting_.empty())
        if (auto turned = turn_within(patience); !turned) return turned;
    return Ok{};
}

}  // namespace tnr::ssh
