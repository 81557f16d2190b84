// The end that gets the files. One thread hears the sender: it looks what is there of each entry as it comes, asks for what is
// missing, and writes what arrives. Small files are written, and old ones hashed, by threads of their own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <map>

#include "cli/sync/engine/arriving.hpp"
#include "cli/sync/engine/destination.hpp"
#include "cli/sync/engine/leftovers.hpp"
#include "cli/sync/engine/messages.hpp"
#include "cli/sync/engine/old_files.hpp"
#include "cli/sync/engine/session.hpp"
#include "cli/sync/engine/temporary.hpp"

namespace tnr::sync {
namespace {

// Files whose old versions are told of before the first of them has arrived: bounds what the sender keeps for us.
constexpr size_t comparing_max = 8;

Message ask(Says what) {
    return Message(static_cast<uint8_t>(what));
}

class Receiver {
public:
    Receiver(const Link& link, Inbox& inbox, Outbox& outbox, const SyncSettings& settings, Counters& counters)
        : link_(link),
          inbox_(inbox),
          outbox_(outbox),
          settings_(settings),
          counters_(counters),
          destination_(settings),
          old_files_(std::make_unique<OldFiles>(outbox)) {}

    Result<Tally> run() {
        auto done = receive();
        if (done) done = finish();
        arriving_.reset();
        if (done) {
            outbox_.send(ask(Says::done)
                             .number(counters_.files)
                             .number(counters_.unchanged)
                             .number(tally_.removed)
                             .number(tally_.nothing_removed));
            outbox_.finish();
        } else {
            small_files_.settle();
            destination_.restore_modes();
            if (done.error().kind != Error::Kind::network) {
                outbox_.send(error_message(static_cast<uint8_t>(Says::failed), done.error()));
                outbox_.finish();
            }
            link_.cut();
        }
        old_files_.reset();
        if (!done) return done.error();
        Tally counted = counters_.now();
        tally_.files = counted.files, tally_.unchanged = counted.unchanged, tally_.bytes = counted.bytes;
        tally_.bytes_found = counted.bytes_found, tally_.bytes_total = counted.bytes_total;
        return std::move(tally_);
    }

private:
    Result<> receive() {
        while (!listed_ || wanted_ > 0) {
            auto received = inbox_.next();
            if (!received) return received.error();
            Fields fields(received->fields);
            if (auto heard = hear(static_cast<Says>(received->type), fields); !heard) return heard;
            if (auto failure = small_files_.failure()) return write_failed(failure->index, failure->error);
        }
        small_files_.settle();
        if (auto failure = small_files_.failure()) return write_failed(failure->index, failure->error);
        return Ok{};
    }

    Result<> hear(Says says, Fields& fields) {
        switch (says) {
            case Says::entry:
                return listed_ ? Result<>{nonsense()} : hear_entry(fields);
            case Says::rules:
                return hear_rules(fields);
            case Says::list_end:
                return hear_list_end(fields);
            case Says::small:
                return hear_small(fields);
            case Says::begin:
                return hear_begin(fields);
            case Says::data:
            case Says::zeros:
            case Says::copy:
            case Says::patch:
                return hear_piece(says, fields);
            case Says::end:
                return hear_end(fields);
            case Says::dropped:
                return hear_dropped(fields);
            case Says::sign:
                return hear_sign(fields);
            case Says::trouble:
                return hear_trouble(fields, tally_);
            case Says::failed:
                return error_of(fields);
            default:
                return nonsense();
        }
    }

    Error write_failed(uint32_t index, int error) {
        return error == EPROTO ? nonsense() : write_error(settings_, destination_.path_of(index), error);
    }
    Result<> written(uint32_t index, int error) {
        return error ? Result<>{write_failed(index, error)} : Result<>{Ok{}};
    }

    // --- what there is ---

    Result<> hear_entry(Fields& fields) {
        uint64_t parent = fields.number();
        Item item{std::string(fields.text())};
        uint64_t kind = fields.number();
        item.size = fields.number();
        item.mode = static_cast<uint32_t>(fields.number());
        item.special = fields.number() != 0;
        item.mtime = fields.seconds();
        item.mtime_ns = fields.nanoseconds();
        item.leads_to = fields.text();
        if (!fields.good() || kind > static_cast<uint64_t>(Kind::other)) return nonsense();
        item.kind = static_cast<Kind>(kind);
        if (item.special) ++tally_.special;
        auto index = destination_.add(parent, std::move(item));
        if (!index) return index.error();
        if (*index == 0 && destination_[0].item.kind != Kind::folder)
            if (auto looked = leftovers_.look_in(destination_[0].parent); !looked) return looked;
        switch (destination_[*index].item.kind) {
            case Kind::folder:
                return enter(*index);
            case Kind::file:
                return compare(*index);
            case Kind::link:
                return link(*index);
            case Kind::other:
                ++tally_.others;
        }
        return Ok{};
    }

    Result<> enter(uint32_t index) {
        if (auto made = destination_.make_folder(index); !made) return made;
        return destination_[index].fresh ? Result<>{Ok{}} : leftovers_.look_in(index);
    }

    Result<> link(uint32_t index) {
        auto made = destination_.make_link(index, names_.next());
        if (!made) return made.error();
        ++(*made ? counters_.files : counters_.unchanged);
        return *made ? would_copy(index) : Result<>{Ok{}};
    }

    Result<> would_copy(uint32_t index) { return would(false, destination_.path_of(index)); }
    Result<> would(bool removal, const std::string& path) {
        if (!settings_.dry_run) return Ok{};
        if (settings_.here)
            (removal ? tally_.removals : tally_.copies).push_back(path);
        else
            outbox_.send(ask(Says::would).number(removal).text(path));
        return Ok{};
    }

    Result<> compare(uint32_t index) {
        auto there = destination_.look(index);
        if (!there) return there.error();
        auto wants = destination_.wants(index, *there);
        if (!wants) return wants.error();
        if (!*wants) {
            ++counters_.unchanged;
            return Ok{};
        }
        const Entry& entry = destination_[index];
        if (settings_.dry_run) {
            ++counters_.files;
            counters_.bytes_total += entry.item.size;
            return would_copy(index);
        }
        if (settings_.here) counters_.bytes_total += entry.item.size;
        ++wanted_;
        find_old(index, *there);
        if (entry.old_name.empty()) return want(index);
        comparisons_.push_back(index);
        return tell_next();
    }

    // The larger of what is there and what an earlier run has left of it.
    void find_old(uint32_t index, const std::optional<Item>& there) {
        Entry& entry = destination_[index];
        old_sizes_.erase(index);
        if (entry.item.size < delta_bytes_min) return;
        uint64_t best = 0;
        if (there && there->kind == Kind::file && there->size >= delta_bytes_min) {
            best = there->size;
            entry.old_name = there->path;
        }
        if (entry.item.size >= resume_bytes_min) look_at_parts(index, best);
        if (best) old_sizes_[index] = best;
    }

    void look_at_parts(uint32_t index, uint64_t& best) {
        Entry& entry = destination_[index];
        auto where = destination_.place(index);
        if (!where) return;
        for (const auto& name : leftovers_.parts_of(index)) {
            UniqueFd part = open_part({where->folder, name});
            off_t size = part ? ::lseek(part.get(), 0, SEEK_END) : 0;
            if (size < static_cast<off_t>(delta_bytes_min) || static_cast<uint64_t>(size) <= best) continue;
            best = static_cast<uint64_t>(size);
            entry.old_name = name;
        }
    }

    Result<> want(uint32_t index) {
        destination_[index].state = Entry::State::wanted;
        outbox_.send(ask(Says::want).number(index));
        return Ok{};
    }

    Result<> tell_next() {
        for (; !comparisons_.empty() && comparing_ < comparing_max; comparisons_.pop_front()) {
            uint32_t index = comparisons_.front();
            auto where = old_place(index);
            if (!where) return where.error();
            uint64_t size = old_sizes_[index];
            destination_[index].state = Entry::State::comparing;
            ++comparing_;
            outbox_.send(ask(Says::compare).number(index).number(size).number(delta_block_bytes(size)));
            old_files_->tell_blocks(index, *where, size);
        }
        return Ok{};
    }

    Result<Place> old_place(uint32_t index) {
        auto where = destination_.place(index);
        if (where) where->name = destination_[index].old_name;
        return where;
    }

    Result<> hear_rules(Fields& fields) {
        uint64_t index = fields.number();
        std::string inside(fields.text());
        std::vector<std::string> texts;
        for (size_t i = 0; i < std::size(ignore_files); ++i) texts.emplace_back(fields.text());
        if (!fields.good() || listed_) return nonsense();
        return destination_.set_rules(index, std::move(texts), inside);
    }

    Result<> hear_list_end(Fields& fields) {
        unreadable_ = fields.number();
        tally_.ignored = fields.number();
        if (!fields.good() || listed_ || destination_.size() == 0) return nonsense();
        listed_ = true;
        if (settings_.remove_extra && destination_.size() == 1 && unreadable_ == 0) return empty_source();
        return Ok{};
    }

    // --- what arrives ---

    Result<> settled(uint64_t index, bool arrived) {
        Entry& entry = destination_[static_cast<uint32_t>(index)];
        if (entry.state == Entry::State::comparing) --comparing_;
        entry.state = Entry::State::settled;
        --wanted_;
        if (arrived) ++counters_.files;
        return tell_next();
    }

    // The sender has given it up: the file has changed while it was read, or cannot be read any more.
    void drop_arriving() {
        if (arriving_) arriving_->throw_away();
        arriving_.reset();
    }

    bool is_wanted(uint64_t index) {
        return index < destination_.size() && destination_[static_cast<uint32_t>(index)].state != Entry::State::settled;
    }

    Result<> hear_small(Fields& fields) {
        uint64_t index = fields.number();
        Item item;
        item.mode = static_cast<uint32_t>(fields.number());
        item.mtime = fields.seconds();
        item.mtime_ns = fields.nanoseconds();
        std::string_view digest = fields.text(), content = fields.text();
        auto at = static_cast<uint32_t>(index);
        bool again = arriving_ && arriving_->index() == index;  // it has become small
        if (!fields.good() || !is_wanted(index) || (arriving_ && !again) || (item.mode & ~0777u)) return nonsense();
        drop_arriving();
        if (digest != digest_of(content)) return damaged(at);
        auto where = destination_.place_to_write(at);
        if (!where) return where.error();
        if (settings_.here) counters_.bytes += content.size();
        small_files_.put(destination_[at].parent, {at, std::move(*where), item, destination_[at].replaces_folder,
                                                   names_.next(), std::string(content)});
        return settled(index, true);
    }

    Result<> hear_begin(Fields& fields) {
        uint64_t index = fields.number();
        Item item;
        item.kind = Kind::file;
        item.size = fields.number();
        item.mode = static_cast<uint32_t>(fields.number());
        item.mtime = fields.seconds();
        item.mtime_ns = fields.nanoseconds();
        bool again = arriving_ && arriving_->index() == index;
        if (!fields.good() || !is_wanted(index) || (arriving_ && !again) || (item.mode & ~0777u) ||
            item.size > INT64_MAX)
            return nonsense();
        auto at = static_cast<uint32_t>(index);
        drop_arriving();
        auto where = destination_.place_to_write(at);
        if (!where) return where.error();
        arriving_ = std::make_unique<Arriving>(at, item, *where, destination_[at].replaces_folder);
        if (int error = arriving_->open(names_)) return write_failed(at, error);
        if (destination_[at].state != Entry::State::comparing) return Ok{};
        auto old = old_place(at);
        if (!old) return old.error();
        arriving_->use_old(open_old(*old), old_sizes_[at]);
        return Ok{};
    }

    Result<> hear_piece(Says says, Fields& fields) {
        if (!arriving_) return nonsense();
        uint64_t one = says == Says::data ? 0 : fields.number();
        uint64_t two = says == Says::copy || says == Says::patch ? fields.number() : 0;
        std::string_view bytes = says == Says::data || says == Says::patch ? fields.text() : std::string_view{};
        if (!fields.good()) return nonsense();
        int error = says == Says::data    ? arriving_->add(bytes)
                    : says == Says::zeros ? arriving_->add_zeros(one)
                    : says == Says::copy  ? arriving_->copy(one, two)
                                          : arriving_->patch(one, two != 0, bytes);
        if (settings_.here) {
            if (says == Says::zeros) counters_.bytes += one;
            if (says == Says::copy) counters_.bytes_found += two;
            counters_.bytes += bytes.size();
        }
        return written(arriving_->index(), error);
    }

    Result<> hear_end(Fields& fields) {
        std::string_view digest = fields.text();
        if (!fields.good() || !arriving_) return nonsense();
        uint32_t index = arriving_->index();
        Entry& entry = destination_[index];
        if (!arriving_->whole(digest)) {
            bool compared = entry.state == Entry::State::comparing;
            drop_arriving();
            if (!compared) return damaged(index);
            --comparing_;  // a wrong match, or the old file has changed
            return want(index);
        }
        int error = arriving_->settle();
        arriving_.reset();
        if (error) return write_failed(index, error);
        if (entry.state == Entry::State::comparing && is_temporary(entry.old_name)) {
            auto part = old_place(index);
            if (part) ::unlinkat(part->fd(), part->name.c_str(), 0);
        }
        return settled(index, true);
    }

    Error damaged(uint32_t index) {
        return {Error::Kind::remote, destination_.path_of(index) + " was damaged on the way",
                "sync again; when that happens twice, memory or a disk may be failing"};
    }

    Result<> hear_dropped(Fields& fields) {
        uint64_t index = fields.number();
        if (!fields.good() || !is_wanted(index) || (arriving_ && arriving_->index() != index)) return nonsense();
        drop_arriving();
        return settled(index, false);
    }

    Result<> hear_sign(Fields& fields) {
        uint64_t index = fields.number(), from = fields.number();
        auto at = static_cast<uint32_t>(index);
        bool compared = is_wanted(index) && destination_[at].state == Entry::State::comparing;
        if (!fields.good() || !compared || !arriving_ || arriving_->index() != index) return nonsense();
        auto where = old_place(at);
        if (!where) return where.error();
        old_files_->tell_signature(at, *where, old_sizes_[at], from);
        return Ok{};
    }

    // --- the end ---

    Result<> finish() {
        if (settings_.remove_extra) {
            tally_.nothing_removed = unreadable_ > 0;
            auto removed = [&](const std::string& path) {
                ++tally_.removed;
                (void)would(true, path);
            };
            auto failed = [&](const Error& error) {
                if (tally_.unreadable.size() < troubles_max) tally_.unreadable.push_back(error);
                if (!settings_.here) outbox_.send(error_message(static_cast<uint8_t>(Says::trouble), error));
            };
            if (!tally_.nothing_removed)
                if (auto done = destination_.remove_extra(removed, failed); !done) return done;
        }
        if (settings_.dry_run) return Ok{};
        leftovers_.sweep();
        return destination_.finish_folders();
    }

    const Link& link_;
    Inbox& inbox_;
    Outbox& outbox_;
    const SyncSettings& settings_;
    Counters& counters_;
    Destination destination_;
    Leftovers leftovers_{destination_};
    Names names_;
    SmallFiles small_files_;
    std::unique_ptr<OldFiles> old_files_;
    std::unique_ptr<Arriving> arriving_;
    Tally tally_;
    uint64_t wanted_ = 0, unreadable_ = 0;
    bool listed_ = false;
    std::map<uint32_t, uint64_t> old_sizes_;
    std::deque<uint32_t> comparisons_;  // whose turn has not come yet
    size_t comparing_ = 0;
};

}  // namespace

Result<Tally> receive_tree(const Link& link, Inbox& inbox, Outbox& outbox, const SyncSettings& settings,
                           Counters& counters) {
    return Receiver{link, inbox, outbox, settings, counters}.run();
}

}  // namespace tnr::sync
