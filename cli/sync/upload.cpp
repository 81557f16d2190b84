// Upload: look at what is there, make folders, send files, then set the folders' own modes and times.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "api_client/base/files.hpp"
#include "cli/sync/copying.hpp"

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
    Upload(ssh::Sftp& sftp, const std::string& machine, const std::string& from, const std::string& to, bool ignore,
           const Watch& watch)
        : Copying(sftp, machine, from, to, watch), ignore_(ignore) {}

    Result<Tally> run() {
        auto items = local_tree(from_, ignore_, tally_);
        if (!items) return items.error();
        items_ = std::move(*items);
        count_losses();
        auto done = in_order(*this, {&Upload::look, &Upload::sweep, &Upload::adopt_parts, &Upload::make_folders,
                                     &Upload::send_files, &Upload::make_links, &Upload::finish_folders});
        if (done) return tally_;
        clean_up();
        return done.error();
    }

private:
    std::string place(const Item& item) const {
        std::string whole = joined(to_, item.path);
        return whole.empty() ? "." : whole;
    }

    Result<> look() {
        for (const auto& item : items_) {
            if (auto free = room(); !free) return free;
            // A folder may be a link to one over there (a home on another disk); everything else is taken literally.
            auto heard = [this, &item](ssh::Reply reply) {
                if (reply.ok()) there_[&item] = item_of(item.path, reply.attributes);
            };
            if (item.kind == Kind::folder)
                sftp_.stat(place(item), heard);
            else
                sftp_.lstat(place(item), heard);
            if (item.kind == Kind::file) tally_.bytes_total += item.size;
        }
        return settled();
    }

    // What runs that were killed have left in the folders that get something.
    Result<> sweep() {
        want_parts([this](const Item& item) { return place(item); });
        for (const auto& item : items_) {
            auto there = there_.find(&item);
            if (auto free = room(); !free) return free;
            if (item.kind == Kind::folder && there != there_.end() && there->second.kind == Kind::folder)
                sweep(place(item));
            else if (item.path.empty() && item.kind != Kind::folder)
                sweep(folder_of(place(item)));
        }
        return settled();
    }

    // A folder that cannot be read keeps what it has.
    void sweep(const std::string& folder) {
        sftp_.open_folder(folder, [this, folder](ssh::Reply reply) {
            if (reply.ok()) sweep(folder, reply.bytes);
        });
    }

    void sweep(const std::string& folder, const std::string& handle) {
        sftp_.read_folder(handle, [this, folder, handle](ssh::Reply reply) {
            if (!reply.ok()) return sftp_.close(handle, [](ssh::Reply) {});
            for (const auto& entry : reply.names)
                if (is_temporary(entry.name) &&
                    !remember_part(folder, entry.name, entry.attributes.size.value_or(UINT64_MAX)) &&
                    is_abandoned(entry.attributes.mtime.value_or(UINT32_MAX)))
                    remove(joined(folder, entry.name));
            sweep(folder, handle);
        });
    }

    Result<> adopt_parts() {
        for (auto part = parts_.begin(); part != parts_.end();) {
            const Item& item = *part->first;
            uint64_t bytes = bytes_to_keep(part->second.bytes);
            std::string hash = bytes ? hash_here(joined(from_, item.path), bytes) : "";
            bool right = !hash.empty() && hash == hash_there(sftp_, part->second.path, bytes), ours = false;
            std::string own = Copying::temporary(place(item), item);
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

    Result<> make_folders() {
        if (auto made = make_way(); !made) return made;
        for (const auto& item : items_) {
            if (item.kind != Kind::folder) continue;
            auto there = there_.find(&item);
            if (there != there_.end() && there->second.kind == Kind::folder) continue;
            if (there != there_.end())
                return Error{Error::Kind::remote, machine_ + ":" + place(item) + " is a file there, and a folder here",
                             "remove or rename one of them"};
            if (auto free = room(); !free) return free;
            sftp_.make_folder(place(item), folder_while_filling, [this, &item](ssh::Reply reply) {
                if (!reply.ok()) fail(reply, "cannot make folder", place(item));
            });
        }
        return settled();
    }

    // The folders above the destination; those that exist answer with a failure that says nothing.
    Result<> make_way() {
        for (size_t slash = to_.find('/', 1); slash != std::string::npos; slash = to_.find('/', slash + 1))
            sftp_.make_folder(to_.substr(0, slash), 0755, [](ssh::Reply) {});
        return settled();
    }

    Result<> send_files() {
        return copy_files<Sending>(
            sending_, [this](const Item& item) { return begin(item); },
            [this](const SendingPtr& file) { return send_piece(file); });
    }

    Result<> begin(const Item& item) {
        auto there = there_.find(&item);
        bool same = there != there_.end() && there->second.kind == Kind::file && there->second.size == item.size &&
                    there->second.mtime == sftp_time(item);
        if (same) return leave(item, there->second);
        if (there != there_.end() && there->second.kind == Kind::folder)
            return Error{Error::Kind::remote, machine_ + ":" + place(item) + " is a folder there, and a file here",
                         "remove or rename one of them"};
        auto file = std::make_shared<Sending>();
        file->item = &item;
        file->source = UniqueFd{::open(joined(from_, item.path).c_str(), O_RDONLY | O_CLOEXEC)};
        if (!file->source) {  // no reason to keep the others here
            tally_.unreadable.push_back(file_error("cannot read", joined(from_, item.path), errno));
            tally_.bytes_total -= item.size;
            return Ok{};
        }
        file->place = place(item);
        auto part = parts_.find(&item);
        bool goes_on = part != parts_.end();
        file->temporary = goes_on ? part->second.path : Copying::temporary(file->place, item);
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
        if (got < 0) fail(file_error("cannot read", joined(from_, file->item->path), errno));
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
            fail(Error{Error::Kind::remote, doing + " " + machine_ + ":" + file->place + ": the disk there is full",
                       "see what takes the space: `tnr connect " + machine_ + " -- df -h`; then sync again"});
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
            auto there = there_.find(&item);
            if (there != there_.end() && there->second.kind == Kind::link &&
                there->second.size == item.leads_to.size()) {
                sftp_.read_link(place(item), [this, &item](ssh::Reply reply) {
                    if (reply.ok() && !reply.names.empty() && reply.names[0].name == item.leads_to)
                        ++tally_.unchanged;
                    else
                        make_link(item);
                });
                continue;
            }
            make_link(item);
        }
        return settled();
    }

    void make_link(const Item& item) {
        std::string temporary = Copying::temporary(place(item));
        sftp_.make_link(temporary, item.leads_to, [this, &item, temporary](ssh::Reply reply) {
            if (!reply.ok()) return fail(reply, "cannot make link", place(item));
            sftp_.rename_over(temporary, place(item), [this, &item, temporary](ssh::Reply renamed) {
                if (renamed.ok())
                    ++tally_.files;
                else
                    fail(renamed, "cannot make link", place(item)), remove(temporary);
            });
        });
    }

    Result<> finish_folders() {
        auto asked = each_folder_upwards([this](const Item& item) { return finish(item); });
        return asked ? settled() : asked;
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

    const bool ignore_;
    std::map<const Item*, Item> there_;
    std::list<SendingPtr> sending_;
};

}  // namespace

Result<Tally> upload(ssh::Sftp& sftp, const std::string& machine, const std::string& from, const std::string& to,
                     bool ignore, const Watch& watch) {
    return Upload{sftp, machine, from, to, ignore, watch}.run();
}

}  // namespace tnr::sync
