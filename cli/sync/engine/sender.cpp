// The end that has the files. Three threads: one walks the tree and tells what there is, one hears what the receiver wants,
// one sends that. None waits for an answer to the other end's last word, so that there are as many files on their way as fit.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>

#include "api_client/base/handles.hpp"
#include "api_client/base/interrupt.hpp"
#include "cli/sync/engine/delta.hpp"
#include "cli/sync/engine/file_times.hpp"
#include "cli/sync/engine/ignore.hpp"
#include "cli/sync/engine/messages.hpp"
#include "cli/sync/engine/session.hpp"
#include "cli/sync/engine/tree.hpp"

namespace tnr::sync {
namespace {

// A file that changes while it is read is read again, so often.
constexpr int tries_max = 3;
// A receiver asks for a file, and once more when a delta came out wrong; whoever asks more often means us to hold it all.
constexpr uint8_t wants_max = 4;
// Hashes and signatures that wait for their file.
constexpr uint64_t told_bytes_max = uint64_t{256} << 20;

// What is known of an old file at the other end.
struct Old {
    uint64_t size = 0, block = 0;
    std::string hashes;
};

struct Want {
    uint32_t index = 0;
    std::unique_ptr<Old> old;  // null: the whole file
};

struct Node {
    uint32_t parent = 0;
    Kind kind = Kind::other;
    uint8_t wants = 0;
    uint64_t size = 0;
    std::string name;
};

Message say(Says what) {
    return Message(static_cast<uint8_t>(what));
}

bool all_zeros(std::string_view bytes) {
    return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

bool same_file(const struct stat& one, const struct stat& other) {
    return one.st_size == other.st_size && same_time(modified_at(one), modified_at(other)) &&
           same_time(changed_at(one), changed_at(other));
}

// A file that is being sent.
struct Reading {
    uint32_t index = 0;
    UniqueFd fd;
    struct stat found {};
    uint64_t size() const { return static_cast<uint64_t>(found.st_size); }
    bool changed() const {
        struct stat now;
        return ::fstat(fd.get(), &now) != 0 || !same_file(found, now);
    }
};

class Sender {
public:
    Sender(const Link& link, Inbox& inbox, Outbox& outbox, const SyncSettings& settings, Counters& counters)
        : link_(link), inbox_(inbox), outbox_(outbox), settings_(settings), counters_(counters) {}

    Result<Tally> run() {
        std::thread lister, server;
        {
            interrupt::SignalsBlocked blocked;
            lister = std::thread([this] { list(); });
            server = std::thread([this] { serve(); });
        }
        auto over = listen();
        {
            LockGuard lock(mutex_);
            leaving_ = true;
            changed_.notify_all();
        }
        if (!over && over.error().kind != Error::Kind::network) outbox_.finish();  // our own last word
        if (!over) link_.cut();
        lister.join();
        server.join();
        LockGuard lock(mutex_);
        if (failed_) return *failed_;
        if (!over) return over.error();
        tally_.bytes = counters_.bytes;
        tally_.bytes_found = counters_.bytes_found;
        tally_.bytes_total = counters_.bytes_total;
        return std::move(tally_);
    }

private:
    // --- what there is ---

    void list() {
        std::unordered_map<std::string, uint32_t> folders;
        WalkSettings walk_settings{settings_.ignore, [this](const std::string& path, int error_number) {
                                       return read_error(settings_, path, error_number);
                                   }};
        auto walked = walk_tree(settings_.from, walk_settings,
                                [&](const Item& item, const auto& rules) { return tell(item, rules.get(), folders); });
        if (!walked) return fail(walked.error());
        for (const auto& error : walked->unreadable) trouble(error);
        {
            LockGuard lock(mutex_);
            tally_.ignored = walked->ignored;
        }
        outbox_.send(say(Says::list_end).number(walked->unreadable.size()).number(walked->ignored));
    }

    bool tell(const Item& item, const IgnoreRules* rules, std::unordered_map<std::string, uint32_t>& folders) {
        size_t slash = item.path.rfind('/');
        bool root = item.path.empty(), top = slash == std::string::npos;
        uint32_t index = 0, parent = root ? 0 : folders.at(top ? "" : item.path.substr(0, slash));
        std::string name = root ? "" : item.path.substr(top ? 0 : slash + 1);
        {
            LockGuard lock(mutex_);
            index = static_cast<uint32_t>(nodes_.size());
            nodes_.push_back({parent, item.kind, 0, item.size, name});
            if (item.kind == Kind::other) ++tally_.others;
            if (item.special) ++tally_.special;
        }
        if (item.kind == Kind::folder) folders[item.path] = index;
        bool sent = outbox_.send(say(Says::entry)
                                     .number(root ? 0 : parent + uint64_t{1})
                                     .text(name)
                                     .number(static_cast<uint64_t>(item.kind))
                                     .number(item.size)
                                     .number(item.mode)
                                     .number(item.special)
                                     .time(item.mtime, item.mtime_ns)
                                     .text(item.leads_to));
        if (!sent || !rules) return sent;
        for (const IgnoreRules* own : rules->of(item.path)) {
            const auto& texts = own->texts();
            if (!outbox_.send(say(Says::rules).number(index).text(own->inside()).text(texts[0]).text(texts[1])))
                return false;
        }
        return true;
    }

    // --- what the receiver says ---

    Result<> listen() {
        for (;;) {
            auto received = inbox_.next();
            if (!received) return received.error();
            Fields fields(received->fields);
            auto says = static_cast<Says>(received->type);
            if (says == Says::failed) return error_of(fields);
            if (says == Says::done) return take_done(fields);
            if (auto heard = hear(says, fields); !heard) {
                outbox_.send(error_message(static_cast<uint8_t>(Says::failed), heard.error()));
                return heard;
            }
        }
    }

    Result<> take_done(Fields& fields) {
        LockGuard lock(mutex_);
        tally_.files = fields.number();
        tally_.unchanged = fields.number();
        tally_.removed = fields.number();
        tally_.nothing_removed = fields.number() != 0;
        return fields.good() ? Result<>{Ok{}} : Result<>{nonsense()};
    }

    Result<> hear(Says says, Fields& fields) {
        LockGuard lock(mutex_);
        switch (says) {
            case Says::want:
                return hear_want(fields, nullptr);
            case Says::compare:
                return hear_want(fields, std::make_unique<Old>());
            case Says::blocks:
                return hear_blocks(fields);
            case Says::signature:
                return hear_signature(fields);
            case Says::trouble:
                return hear_trouble(fields, tally_);
            case Says::would: {
                auto& list = fields.number() ? tally_.removals : tally_.copies;
                list.emplace_back(fields.text());
                return count_held(list.back().size()) && fields.good() ? Result<>{Ok{}} : Result<>{nonsense()};
            }
            default:
                return nonsense();
        }
    }

    bool count_held(uint64_t bytes) TNR_REQUIRES(mutex_) { return (held_ += bytes + 32) <= held_bytes_max; }

    Result<> hear_want(Fields& fields, std::unique_ptr<Old> old) TNR_REQUIRES(mutex_) {
        uint64_t index = fields.number();
        if (old) old->size = fields.number(), old->block = fields.number();
        if (!fields.good() || index >= nodes_.size() || nodes_[index].kind != Kind::file ||
            ++nodes_[index].wants > wants_max)
            return nonsense();
        if (nodes_[index].wants == 1) counters_.bytes_total += nodes_[index].size;
        Want want{static_cast<uint32_t>(index), std::move(old)};
        if (!want.old) {
            ready_.push_back(std::move(want));
            changed_.notify_all();
            return Ok{};
        }
        if (!good_block_bytes(want.old->block, want.old->size) || told_.count(want.index)) return nonsense();
        told_[want.index] = std::move(want);
        return Ok{};
    }

    Result<> hear_blocks(Fields& fields) TNR_REQUIRES(mutex_) {
        auto want = told_.find(static_cast<uint32_t>(fields.number()));
        bool last = fields.number() != 0;
        std::string_view hashes = fields.text();
        if (!fields.good() || want == told_.end()) return nonsense();
        Old& old = *want->second.old;
        old.hashes += hashes;
        told_bytes_ += hashes.size();
        if (old.hashes.size() > old.size / old.block * sizeof(uint64_t) || told_bytes_ > told_bytes_max)
            return nonsense();
        if (!last) return Ok{};
        ready_.push_back(std::move(want->second));
        told_.erase(want);
        changed_.notify_all();
        return Ok{};
    }

    Result<> hear_signature(Fields& fields) TNR_REQUIRES(mutex_) {
        uint64_t index = fields.number();
        bool last = fields.number() != 0;
        std::string_view bytes = fields.text();
        if (!fields.good() || !asking_ || index != *asking_ || signature_over_) return nonsense();
        signature_ += bytes;
        if (signature_.size() > signature_bytes_max) return nonsense();
        signature_over_ = last;
        changed_.notify_all();
        return Ok{};
    }

    // --- sending ---

    void serve() {
        for (;;) {
            Want want;
            {
                UniqueLock lock(mutex_);
                changed_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return !ready_.empty() || leaving_; });
                if (leaving_) return;
                want = std::move(ready_.front());
                ready_.pop_front();
                if (want.old) told_bytes_ -= want.old->hashes.size();
            }
            if (!send_file(want)) return;
        }
    }

    std::string path_of(uint32_t index) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        std::string path;
        for (; index != 0; index = nodes_[index].parent) path.insert(0, nodes_[index].name + (path.empty() ? "" : "/"));
        return joined(settings_.from, path);
    }

    // False: nothing more can be sent.
    bool send_file(const Want& want) {
        std::string path = path_of(want.index);
        for (int tries = 0; tries < tries_max; ++tries) {
            Reading file{want.index, UniqueFd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK |
                                                                       (want.index ? O_NOFOLLOW : 0))}};
            if (!file.fd || ::fstat(file.fd.get(), &file.found) != 0)
                return drop(want, read_error(settings_, path, errno));
            if (!S_ISREG(file.found.st_mode)) return drop(want, read_error(settings_, path, EINVAL));
            uint64_t bytes = counters_.bytes, found = counters_.bytes_found;
            int error =
                !want.old && file.size() <= piece_bytes_max ? send_small(file) : send_large(file, want.old.get());
            if (error == 0) return true;
            if (error == EPIPE) return false;
            if (error != EAGAIN) return drop(want, read_error(settings_, path, error));
            counters_.bytes = bytes, counters_.bytes_found = found;
        }
        return drop(want, changes(settings_.told(path)));
    }

    bool drop(const Want& want, const Error& error) {
        trouble(error);
        return outbox_.send(say(Says::dropped).number(want.index));
    }

    // Each answers 0, an errno of reading, EAGAIN when the file has changed, or EPIPE when nobody takes it.
    int send_small(const Reading& file) {
        piece_.resize(piece_bytes_max + 1);
        ssize_t got = ::read(file.fd.get(), piece_.data(), piece_.size());
        if (got < 0) return errno;
        std::string_view content(piece_.data(), static_cast<size_t>(got));
        if (content.size() != file.size() || file.changed()) return EAGAIN;
        Message message = say(Says::small).number(file.index).number(file.found.st_mode & 0777u);
        message.time(modified_at(file.found).tv_sec, static_cast<uint32_t>(modified_at(file.found).tv_nsec));
        message.text(digest_of(content));
        if (content.empty()) message.text("");
        counters_.bytes += content.size();
        return outbox_.send(message, content) ? 0 : EPIPE;
    }

    int send_large(const Reading& file, const Old* old) {
        Message begin = say(Says::begin).number(file.index).number(file.size()).number(file.found.st_mode & 0777u);
        begin.time(modified_at(file.found).tv_sec, static_cast<uint32_t>(modified_at(file.found).tv_nsec));
        if (!outbox_.send(begin)) return EPIPE;
        Digest digest;
        uint64_t at = 0;
        if (old)
            if (int error = send_differences(file, *old, digest, at)) return error;
        if (int error = send_range(file, at, file.size(), &digest)) return error;
        if (file.changed()) return EAGAIN;
        return outbox_.send(say(Says::end).text(digest.value())) ? 0 : EPIPE;
    }

    // A short read is a change of the file.
    int read_piece(const Reading& file, uint64_t at, uint64_t count, std::string_view& bytes) {
        piece_.resize(std::max<size_t>(piece_.size(), count));
        ssize_t got = ::pread(file.fd.get(), piece_.data(), count, static_cast<off_t>(at));
        if (got < 0) return errno;
        bytes = {piece_.data(), static_cast<size_t>(got)};
        return bytes.size() == count ? 0 : EAGAIN;
    }

    int send_range(const Reading& file, uint64_t at, uint64_t end, Digest* digest) {
        while (at < end) {
            uint64_t count = std::min(piece_bytes_max, end - at);
            std::string_view bytes;
            if (int error = read_piece(file, at, count, bytes)) return error;
            if (digest) digest->add(bytes);
            counters_.bytes += count;
            at += count;
            bool sent =
                all_zeros(bytes) ? outbox_.send(say(Says::zeros).number(count)) : outbox_.send(say(Says::data), bytes);
            if (!sent) return EPIPE;
        }
        return 0;
    }

    // Afterwards everything before `at` has been said.
    int send_differences(const Reading& file, const Old& old, Digest& digest, uint64_t& at) {
        std::vector<bool> same;
        if (int error = compare_blocks(file, old, digest, same)) return error;
        for (size_t i = 0; i < same.size();) {
            size_t end = i + 1;
            while (end < same.size() && same[end] == same[i]) ++end;
            uint64_t from = i * old.block, to = end * old.block;
            if (!same[i])
                if (int error = send_range(file, from, to, nullptr)) return error;
            if (same[i] && !outbox_.send(say(Says::copy).number(from).number(to - from))) return EPIPE;
            if (same[i]) counters_.bytes_found += to - from;
            i = end;
        }
        at = same.size() * old.block;
        // In less than this librsync would save nothing.
        if (old.size < at + delta_bytes_min || file.size() < at + delta_bytes_min) return 0;
        return send_moved(file, digest, at);
    }

    // Which blocks are at their places, up to the last one that is; `digest` is then that of all before.
    int compare_blocks(const Reading& file, const Old& old, Digest& digest, std::vector<bool>& same) {
        Digest running;
        size_t blocks = std::min<uint64_t>(old.hashes.size() / sizeof(uint64_t), file.size() / old.block), kept = 0;
        size_t at_once = std::max<size_t>(piece_bytes_max / old.block, 1);
        same.resize(blocks);
        for (size_t i = 0; i < blocks; i += at_once) {
            size_t count = std::min(at_once, blocks - i);
            std::string_view bytes;
            if (int error = read_piece(file, i * old.block, count * old.block, bytes)) return error;
            for (size_t k = 0; k < count; ++k) {
                std::string_view block = bytes.substr(k * old.block, old.block);
                uint64_t hash = 0;
                std::memcpy(&hash, old.hashes.data() + (i + k) * sizeof hash, sizeof hash);
                running.add(block);
                same[i + k] = hash == block_hash(block);
                if (!same[i + k]) continue;
                kept = i + k + 1;
                digest = running;
            }
        }
        same.resize(kept);
        return 0;
    }

    int send_moved(const Reading& file, Digest& digest, uint64_t& at) {
        auto signature = ask_signature(file.index, at);
        if (!signature) return EPIPE;
        if (signature->empty()) return 0;  // the old file is not there any more
        auto maker = DeltaMaker::from_signature(*signature);
        if (!maker) return 0;
        uint64_t begun = at, said = 0;
        bool lost = false, short_read = false;
        auto sink = [&](std::string_view bytes) {
            said += bytes.size();
            lost = !outbox_.send(say(Says::patch).number(begun).number(0), bytes);
            return !lost;
        };
        auto fresh = [&](char* to, size_t most) -> ssize_t {
            uint64_t count = std::min<uint64_t>(most, file.size() - at);
            ssize_t got = ::pread(file.fd.get(), to, count, static_cast<off_t>(at));
            short_read = got != static_cast<ssize_t>(count);
            if (short_read) return -1;
            digest.add({to, count});
            at += count;
            return got;
        };
        auto ran = (*maker)->run(fresh, sink);
        if (lost) return EPIPE;
        if (!ran) return short_read ? EAGAIN : EIO;
        counters_.bytes += said;
        if (at - begun > said) counters_.bytes_found += at - begun - said;
        return outbox_.send(say(Says::patch).number(begun).number(1).text("")) ? 0 : EPIPE;
    }

    // Nothing: there will be no answer.
    std::optional<std::string> ask_signature(uint32_t index, uint64_t at) TNR_EXCLUDES(mutex_) {
        {
            LockGuard lock(mutex_);
            asking_ = index;
            signature_.clear();
            signature_over_ = false;
        }
        if (!outbox_.send(say(Says::sign).number(index).number(at))) return std::nullopt;
        UniqueLock lock(mutex_);
        changed_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return signature_over_ || leaving_; });
        asking_.reset();
        if (!signature_over_) return std::nullopt;
        return std::move(signature_);
    }

    void trouble(const Error& error) {
        {
            LockGuard lock(mutex_);
            if (tally_.unreadable.size() < troubles_max) tally_.unreadable.push_back(error);
        }
        outbox_.send(error_message(static_cast<uint8_t>(Says::trouble), error));
    }

    void fail(const Error& error) {
        {
            LockGuard lock(mutex_);
            if (!failed_ && !leaving_) failed_ = error;
        }
        outbox_.send(error_message(static_cast<uint8_t>(Says::failed), error));
        outbox_.finish();
        link_.cut();  // which ends listen()
    }

    const Link& link_;
    Inbox& inbox_;
    Outbox& outbox_;
    const SyncSettings& settings_;
    Counters& counters_;
    std::vector<char> piece_;  // the sending thread's

    Mutex mutex_;
    Condition changed_;  // something is ready, or all is over
    std::vector<Node> nodes_ TNR_GUARDED_BY(mutex_);
    std::deque<Want> ready_ TNR_GUARDED_BY(mutex_);
    std::map<uint32_t, Want> told_ TNR_GUARDED_BY(mutex_);  // their blocks are still coming
    uint64_t told_bytes_ TNR_GUARDED_BY(mutex_) = 0, held_ TNR_GUARDED_BY(mutex_) = 0;
    std::optional<uint32_t> asking_ TNR_GUARDED_BY(mutex_);  // for the signature of this one
    std::string signature_ TNR_GUARDED_BY(mutex_);
    bool signature_over_ TNR_GUARDED_BY(mutex_) = false;
    bool leaving_ TNR_GUARDED_BY(mutex_) = false;
    std::optional<Error> failed_ TNR_GUARDED_BY(mutex_);
    Tally tally_ TNR_GUARDED_BY(mutex_);
};

}  // namespace

Result<Tally> send_tree(const Link& link, Inbox& inbox, Outbox& outbox, const SyncSettings& settings,
                        Counters& counters) {
    return Sender{link, inbox, outbox, settings, counters}.run();
}

}  // namespace tnr::sync
