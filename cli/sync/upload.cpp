// Upload: look at what is there, make folders, send files, then set the folders' own modes and times.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>

#include "api_client/base/files.hpp"
#include "cli/sync/copying.hpp"
#include "cli/sync/engine/arriving.hpp"

namespace tnr::sync {
namespace {

constexpr std::chrono::seconds cleanup_limit{3};

// One file on its way. Its callbacks hold it by shared_ptr, so it lives until the last reply.
struct Sending {
    const Item* item = nullptr;
    UniqueFd source;
    std::string place, temporary, handle;
    uint64_t sent = 0;
    size_t writes = 0;  // not answered yet
    bool all_sent = false;
    bool over = false;
    std::optional<ssh::Reply> refused;  // the first refusal of a write
};
using SendingPtr = std::shared_ptr<Sending>;

class Upload : Copying {
public:
    Upload(ssh::Sftp& sftp, const SyncSettings& settings, const Watch& watch) : Copying(sftp, settings, watch) {}

    Result<Tally> run() {
        auto done = take(local_tree(settings_, tally_));
        if (done && settings_.dry_run)
            done = in_order(*this, {&Upload::look, &Upload::list, &Upload::would_do});
        else if (done)
            done = in_order(
                *this, {&Upload::look, &Upload::list, &Upload::adopt_parts, &Upload::make_folders, &Upload::send_files,
                        &Upload::make_links, &Upload::remove_extra, &Upload::finish_folders});
        if (done) return std::move(tally_);
        clean_up();
        return done.error();
    }

private:
    std::string place(const Item& item) const { return place(item.path); }
    std::string place(const std::string& path) const {
        std::string whole = joined(settings_.to, path);
        return whole.empty() ? "." : whole;
    }
    std::string source(const Item& item) const { return joined(settings_.from, item.path); }
    std::string temporary(const std::string& place) { return joined(above(place), names_.next()); }
    std::string temporary(const std::string& place, const Item& item) {
        return joined(above(place), names_.next(place, item));
    }
    // The folder that holds a place.
    static std::string above(const std::string& place) {
        size_t slash = place.rfind('/');
        return slash == std::string::npos ? "." : slash == 0 ? "/" : place.substr(0, slash);
    }

    // --- what there is ---

    Result<> look() {
        for (const auto& item : items_) {
            if (auto free = room(); !free) return free;
            auto heard = [this, &item](ssh::Reply reply) {
                if (!reply.ok()) return;
                there_[&item] = item_of(item.path, reply.attributes);
                if (item.kind == Kind::folder && there_[&item].kind == Kind::link)
                    follow_outside(sftp_, place(""), place(item), [this, &item](const ssh::Attributes& leads_to) {
                        there_[&item] = item_of(item.path, leads_to);
                    });
            };
            if (item.path.empty() && item.kind == Kind::folder)
                sftp_.stat(place(item), heard);
            else
                sftp_.lstat(place(item), heard);
            if (item.kind == Kind::file) tally_.bytes_total += item.size;
        }
        if (auto done = settled(); !done) return done;
        forget_below();
        return Ok{};
    }

    // What was seen through something that is no folder and has to go.
    void forget_below() {
        std::set<std::string> absent;
        for (const auto& item : items_) {
            bool gone = !item.path.empty() && absent.count(folder_of(item.path));
            if (gone) there_.erase(&item);
            auto there = there_.find(&item);
            if (item.kind == Kind::folder && (there == there_.end() || there->second.kind != Kind::folder))
                absent.insert(item.path);
        }
    }

    // What is in the folders that get something: parts of files, other leftovers, and what the source has not.
    Result<> list() {
        want_parts();
        for (const auto& item : items_) listed_.insert(item.path);
        for (const auto& item : items_) {
            auto there = there_.find(&item);
            if (auto free = room(); !free) return free;
            if (item.kind == Kind::folder && there != there_.end() && there->second.kind == Kind::folder)
                list(item);
            else if (item.path.empty() && item.kind != Kind::folder)
                list(item);
        }
        return settled();
    }

    // A folder that cannot be read keeps what it has.
    void list(const Item& item) {
        std::string folder = item.kind == Kind::folder ? place(item) : above(place(item));
        sftp_.open_folder(folder, [this, &item, folder](ssh::Reply reply) {
            if (reply.ok()) list(item, folder, reply.bytes);
        });
    }

    void list(const Item& item, const std::string& folder, const std::string& handle) {
        sftp_.read_folder(handle, [this, &item, folder, handle](ssh::Reply reply) {
            if (!reply.ok()) return sftp_.close(handle, [](ssh::Reply) {});
            for (const auto& entry : reply.names) {
                if (!is_temporary(entry.name))
                    note_extra(item, entry);
                else if (!remember_part(folder, entry.name, entry.attributes.size.value_or(UINT64_MAX)) &&
                         is_abandoned(entry.attributes.mtime.value_or(UINT32_MAX)) && !settings_.dry_run)
                    remove(joined(folder, entry.name));
            }
            list(item, folder, handle);
        });
    }

    void note_extra(const Item& folder, const ssh::Entry& entry) {
        if (!settings_.remove_extra || tally_.nothing_removed || entry.name == "." || entry.name == "..") return;
        Extra extra{joined(folder.path, entry.name), item_of("", entry.attributes).kind};
        if (!listed_.count(extra.path) && !is_protected(folder.path, extra)) extras_.push_back(extra);
    }
    bool is_protected(const std::string& folder, const Extra& extra) const {
        auto rules = rules_.find(folder);
        return rules != rules_.end() && rules->second && rules->second->ignored(extra.path, extra.kind == Kind::folder);
    }

    // Parts of large files that an earlier run has left: where, and how much.
    struct Part {
        std::string path;
        uint64_t bytes = 0;
    };
    void want_parts() {
        for (const auto& item : items_) {
            if (item.kind != Kind::file || item.size < resume_bytes_min) continue;
            std::string there = place(item);
            wanted_[above(there) + '/' + identity(there, item)] = &item;
        }
    }
    // False: the temporary file is none of ours.
    bool remember_part(const std::string& folder, const std::string& name, uint64_t bytes) {
        auto wanted = wanted_.find(folder + '/' + letters_of(name));
        if (wanted == wanted_.end() || bytes > wanted->second->size) return false;
        Part& part = parts_[wanted->second];
        if (bytes > part.bytes) part = {joined(folder, name), bytes};
        return true;
    }

    Result<> adopt_parts() {
        for (auto part = parts_.begin(); part != parts_.end();) {
            const Item& item = *part->first;
            uint64_t bytes = bytes_to_keep(part->second.bytes);
            UniqueFd file{bytes ? ::open(source(item).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1};
            std::string hash = file ? hash_here(file, bytes) : "";
            bool right = !hash.empty() && hash == hash_there(sftp_, part->second.path, bytes), ours = false;
            std::string own = temporary(place(item), item);
            if (right)
                sftp_.rename_over(part->second.path, own, [&ours](ssh::Reply reply) { ours = reply.ok(); });
            else if (!hash.empty())
                remove(part->second.path);
            if (auto done = settled(); !done) return done;
            part->second = {own, bytes};
            part = ours ? std::next(part) : parts_.erase(part);
        }
        return Ok{};
    }

    // --- a dry run ---

    Result<> would_do() {
        for (const auto& item : items_) {
            if (auto free = room(); !free) return free;
            auto there = there_.find(&item);
            bool clashes = there != there_.end() && in_the_way(item, there->second);
            if (clashes && !settings_.remove_extra) return clash(item, there->second.kind);
            if (item.kind == Kind::link)
                compare_link(item, [this, &item](bool same) { would_copy(item, same); });
            else if (item.kind == Kind::file)
                would_copy(item, is_same(item));
        }
        if (auto done = settled(); !done) return done;
        for (const auto& extra : extras_) tally_.removals.push_back(extra.path);
        tally_.removed = extras_.size();
        return Ok{};
    }

    void would_copy(const Item& item, bool same) {
        if (same) {
            ++tally_.unchanged;
            if (item.kind == Kind::file) tally_.bytes_total -= item.size;
            return;
        }
        ++tally_.files;
        tally_.copies.push_back(place(item));
    }

    bool is_same(const Item& item) const {
        auto there = there_.find(&item);
        return there != there_.end() && there->second.kind == Kind::file && there->second.size == item.size &&
               there->second.mtime == sftp_time(item);
    }

    static bool in_the_way(const Item& item, const Item& there) {
        return (item.kind == Kind::folder) != (there.kind == Kind::folder) || there.kind == Kind::other;
    }

    Error clash(const Item& item, Kind there) const {
        const char* what = there == Kind::folder ? "folder" : there == Kind::other ? "device, pipe or socket" : "file";
        return {Error::Kind::remote,
                settings_.machine + ":" + place(item) + " is a " + what + " there, and a " +
                    (item.kind == Kind::folder ? "folder" : "file") + " here",
                "remove or rename one of them, or sync with --delete"};
    }

    // --- sending ---

    Result<> make_folders() {
        if (auto made = make_way(); !made) return made;
        for (const auto& item : items_) {
            if (item.kind != Kind::folder) continue;
            auto there = there_.find(&item);
            if (there != there_.end() && there->second.kind == Kind::folder) continue;
            if (auto cleared = make_room(item); !cleared) return cleared;
            if (auto free = room(); !free) return free;
            sftp_.make_folder(place(item), mode_while_filling(item), [this, &item](ssh::Reply reply) {
                if (!reply.ok()) fail(reply, "cannot make folder", place(item));
            });
        }
        return settled();
    }

    // What is in the way of something of another kind goes with --delete.
    Result<> make_room(const Item& item) {
        auto there = there_.find(&item);
        if (there == there_.end() || !in_the_way(item, there->second)) return Ok{};
        if (!settings_.remove_extra) return clash(item, there->second.kind);
        auto gone = remove_tree({item.path, there->second.kind}, nullptr);
        return gone ? Result<>{Ok{}} : Result<>{gone.error()};
    }

    // The folders above the destination; those that exist answer with a failure that says nothing.
    Result<> make_way() {
        const std::string& to = settings_.to;
        for (size_t slash = to.find('/', 1); slash != std::string::npos; slash = to.find('/', slash + 1))
            sftp_.make_folder(to.substr(0, slash), 0755, [](ssh::Reply) {});
        return settled();
    }

    Result<> send_files() {
        return copy_files<Sending>(
            sending_, [this](const Item& item) { return begin(item); },
            [this](const SendingPtr& file) { return send_piece(file); });
    }

    Result<> begin(const Item& item) {
        auto there = there_.find(&item);
        if (is_same(item)) return leave(item, there->second);
        auto file = std::make_shared<Sending>();
        file->item = &item;
        // What has become a link or a pipe since it was listed is not followed, and not waited for.
        int follow = item.path.empty() ? 0 : O_NOFOLLOW;
        file->source.reset(::open(source(item).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | follow));
        if (!file->source || changed(file)) {  // no reason to keep the others here
            tally_.unreadable.push_back(file->source ? changes(source(item))
                                                     : file_error("cannot read", source(item), errno));
            tally_.bytes_total -= item.size;
            return Ok{};
        }
        if (auto cleared = make_room(item); !cleared) return cleared;
        file->place = place(item);
        auto part = parts_.find(&item);
        bool goes_on = part != parts_.end();
        file->temporary = goes_on ? part->second.path : temporary(file->place, item);
        if (goes_on) file->sent = part->second.bytes;
        tally_.bytes_total -= file->sent;
        sftp_.open_file(file->temporary, goes_on ? ssh::Open::write_on : ssh::Open::write_new,
                        [this, file](ssh::Reply reply) {
                            if (reply.ok())
                                file->handle = reply.bytes;
                            else
                                explain(reply, "cannot write", file);
                        });
        sending_.push_back(file);
        return Ok{};
    }

    static bool changed(const SendingPtr& file) {
        struct stat found;
        if (::fstat(file->source.get(), &found) != 0) return true;
        Item now = item_of("", found);
        return now.kind != Kind::file || now.size != file->item->size || now.mtime != file->item->mtime ||
               now.mtime_ns != file->item->mtime_ns;
    }

    Result<> leave(const Item& item, const Item& there) {
        ++tally_.unchanged;
        tally_.bytes_total -= item.size;
        if (there.mode == item.mode) return Ok{};
        ssh::Attributes mode;
        mode.mode = item.mode;
        sftp_.set_attributes(place(item), mode, [this, &item](ssh::Reply reply) {
            if (!reply.ok()) fail(reply, "cannot set the mode of", place(item));
        });
        return Ok{};
    }

    // True when there may be more to send right away.
    bool send_piece(const SendingPtr& file) {
        if (file->handle.empty() || file->all_sent || sftp_.crowded() || failed_) return false;
        char piece[ssh::sftp_piece_bytes];
        ssize_t got = ::pread(file->source.get(), piece, sizeof piece, static_cast<off_t>(file->sent));
        if (got < 0) fail(file_error("cannot read", source(*file->item), errno));
        if (got < 0) return false;
        if (got == 0) {
            file->all_sent = true;
            conclude(file);
            return false;
        }
        ++file->writes;
        sftp_.write(file->handle, file->sent, {piece, static_cast<size_t>(got)}, [this, file, got](ssh::Reply reply) {
            --file->writes;
            if (reply.ok())
                tally_.bytes += static_cast<uint64_t>(got);
            else if (!file->refused)
                file->refused = reply;
            conclude(file);
        });
        file->sent += static_cast<uint64_t>(got);
        return true;
    }

    // Once every piece is safe: mode and times, close, and only then the name.
    void conclude(const SendingPtr& file) {
        if (file->refused && !file->all_sent) file->all_sent = true;
        if (!file->all_sent || file->writes > 0 || file->over) return;
        file->over = true;
        if (file->refused) return explain(*file->refused, "cannot write", file);
        if (changed(file)) {
            tally_.unreadable.push_back(changes(source(*file->item)));
            sftp_.close(file->handle, [](ssh::Reply) {});
            return remove(file->temporary);
        }
        ssh::Attributes own;
        own.mode = file->item->mode;
        own.mtime = sftp_time(*file->item);
        sftp_.set_handle_attributes(file->handle, own, [this, file](ssh::Reply reply) {
            if (!reply.ok()) fail(reply, "cannot set mode and times of", file->place);
        });
        sftp_.close(file->handle, [this, file](ssh::Reply reply) {
            if (!reply.ok()) return explain(reply, "cannot write", file);
            if (failed_) return remove(file->temporary);
            sftp_.rename_over(file->temporary, file->place, [this, file](ssh::Reply renamed) {
                if (renamed.ok())
                    ++tally_.files;
                else
                    fail(renamed, "cannot write", file->place), remove(file->temporary);
            });
        });
    }

    // OpenSSH calls a full disk just "Failure", so ask.
    void explain(const ssh::Reply& reply, const std::string& doing, const SendingPtr& file) {
        file->over = true;
        std::string folder =
            file->place.find('/') == std::string::npos ? "." : file->place.substr(0, file->place.rfind('/') + 1);
        remove(file->temporary);
        if (reply.status != ssh::Status::failure) return fail(reply, doing, file->place);
        sftp_.is_full(folder, [this, reply, doing, file](bool full) {
            if (!full) return fail(reply, doing, file->place);
            fail(Error{Error::Kind::remote,
                       doing + " " + settings_.machine + ":" + file->place + ": the disk there is full",
                       "see what takes the space: `tnr connect " + settings_.machine + " -- df -h`; then sync again"});
        });
        // Only now: the open half file holds the space whose lack we ask about.
        if (!file->handle.empty()) sftp_.close(file->handle, [](ssh::Reply) {});
    }

    void remove(const std::string& path) {
        sftp_.remove(path, [](ssh::Reply) {});
    }

    Result<> make_links() {
        for (const auto& item : items_) {
            if (item.kind != Kind::link) continue;
            if (auto free = room(); !free) return free;
            if (auto cleared = make_room(item); !cleared) return cleared;
            compare_link(item, [this, &item](bool same) {
                if (same)
                    ++tally_.unchanged;
                else
                    make_link(item);
            });
        }
        return settled();
    }

    void compare_link(const Item& item, std::function<void(bool)> done) {
        auto there = there_.find(&item);
        if (there == there_.end() || there->second.kind != Kind::link || there->second.size != item.leads_to.size())
            return done(false);
        sftp_.read_link(place(item), [&item, done = std::move(done)](ssh::Reply reply) {
            done(reply.ok() && !reply.names.empty() && reply.names[0].name == item.leads_to);
        });
    }

    void make_link(const Item& item) {
        std::string beside = temporary(place(item));
        sftp_.make_link(beside, item.leads_to, [this, &item, beside](ssh::Reply reply) {
            if (!reply.ok()) return fail(reply, "cannot make link", place(item));
            sftp_.rename_over(beside, place(item), [this, &item, beside](ssh::Reply renamed) {
                if (renamed.ok())
                    ++tally_.files;
                else
                    fail(renamed, "cannot make link", place(item)), remove(beside);
            });
        });
    }

    // --- the end ---

    Result<> remove_extra() {
        for (const auto& extra : extras_) {
            auto rules = rules_.find(folder_of(extra.path));
            auto gone = remove_tree(extra, rules == rules_.end() ? nullptr : rules->second.get());
            if (!gone) return gone.error();
            if (*gone) ++tally_.removed;
        }
        return Ok{};
    }

    Result<bool> remove_tree(const Extra& extra, const IgnoreRules* rules) {
        return remove_there(sftp_, settings_, extra, rules, tally_);
    }

    // Touching what is in a folder changes the folder's time, so folders get theirs last, and the deepest first.
    Result<> finish_folders() {
        for (auto item = items_.rbegin(); item != items_.rend(); ++item)
            if (item->kind == Kind::folder)
                if (auto asked = finish(*item); !asked) return asked;
        return settled();
    }

    Result<> finish(const Item& item) {
        // The destination itself, when it was there before, keeps its own: giving a home folder the mode of some
        // project folder can make sshd refuse its owner's key.
        if (item.path.empty() && there_.count(&item)) return Ok{};
        if (auto free = room(); !free) return free;
        ssh::Attributes own;
        own.mode = item.mode;
        own.mtime = sftp_time(item);
        sftp_.set_attributes(place(item), own, [this, &item](ssh::Reply reply) {
            // Somebody else's folder (/tmp) keeps its own; filling it was all we were asked for.
            if (!reply.ok() && !there_.count(&item)) fail(reply, "cannot set mode and times of", place(item));
        });
        return Ok{};
    }

    // Leave no half files, as far as the connection still carries that.
    void clean_up() {
        for (auto& file : sending_) remove(file->temporary);
        (void)sftp_.settle(cleanup_limit);
    }

    std::map<const Item*, Item> there_;
    std::set<std::string> listed_;  // all of the source
    std::vector<Extra> extras_;
    std::map<std::string, const Item*> wanted_;  // by folder and letters
    std::map<const Item*, Part> parts_;          // after adopting: this run's own, and all of `bytes` is right
    Names names_;
    std::list<SendingPtr> sending_;
};

}  // namespace

Result<Tally> upload(ssh::Sftp& sftp, const SyncSettings& settings, const Watch& watch) {
    return Upload{sftp, settings, watch}.run();
}

}  // namespace tnr::sync
