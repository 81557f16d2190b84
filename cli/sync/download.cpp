// Download: the tree over there, as SFTP shows it, goes into the same Destination that trees from our server go into.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cli/sync/copying.hpp"
#include "cli/sync/engine/arriving.hpp"
#include "cli/sync/engine/leftovers.hpp"
#include "cli/sync/engine/old_files.hpp"

namespace tnr::sync {
namespace {

// One file on its way; its callbacks hold it, so it lives until the last reply.
struct Fetching {
    uint32_t index = 0;
    Item item;
    Place place;
    UniqueFd target;
    std::string temporary, handle;
    uint64_t asked = 0;
    size_t reads = 0;  // not answered yet
    bool end_seen = false;
    bool over = false;
};
using FetchingPtr = std::shared_ptr<Fetching>;

class Download : Copying {
public:
    Download(ssh::Sftp& sftp, const SyncSettings& settings, const Watch& watch) : Copying(sftp, settings, watch) {}

    Result<Tally> run() {
        auto done = take(remote_tree(sftp_, settings_, tally_));
        if (done && !settings_.dry_run)
            done = in_order(*this, {&Download::compare, &Download::adopt_parts, &Download::fetch_files,
                                    &Download::remove_extra, &Download::finish});
        else if (done)
            done = in_order(*this, {&Download::compare, &Download::remove_extra});
        if (done) return std::move(tally_);
        // What a lost connection has left of large files is for the next run to go on with.
        bool lost = done.error().kind == Error::Kind::network;
        for (auto& file : fetching_)
            if (!lost || file->item.size < resume_bytes_min) throw_away(file);
        return done.error();
    }

private:
    std::string source(const Item& item) const {
        std::string whole = joined(settings_.from, item.path);
        return whole.empty() ? "." : whole;
    }
    std::string told(const FetchingPtr& file) const { return destination_.path_of(file->index); }
    // The destination has the same items in the same order.
    uint32_t index_of(const Item& item) const { return static_cast<uint32_t>(&item - items_.data()); }

    // --- what there is ---

    Result<> compare() {
        std::map<std::string, uint64_t> folders;  // and one: the destination counts so
        for (const auto& item : items_) {
            size_t slash = item.path.rfind('/');
            bool root = item.path.empty(), top = slash == std::string::npos;
            Item named = item;
            named.path = item.path.substr(top ? 0 : slash + 1);
            auto index = destination_.add(root ? 0 : folders[top ? "" : item.path.substr(0, slash)], std::move(named));
            if (!index) return index.error();
            if (item.kind == Kind::folder) folders[item.path] = *index + uint64_t{1};
            if (auto seen = compare(item, *index); !seen) return seen;
        }
        return Ok{};
    }

    Result<> compare(const Item& item, uint32_t index) {
        if (index == 0 && item.kind != Kind::folder && !settings_.dry_run)
            if (auto looked = leftovers_.look_in(destination_[0].parent); !looked) return looked;
        switch (item.kind) {
            case Kind::folder:
                return enter(item, index);
            case Kind::file:
                return compare_file(item, index);
            case Kind::link:
                return link(index);
            case Kind::other:
                break;
        }
        return Ok{};
    }

    Result<> enter(const Item& item, uint32_t index) {
        auto rules = rules_.find(item.path);
        if (rules != rules_.end() && rules->second)
            for (const IgnoreRules* own : rules->second->of(item.path))
                if (auto set = destination_.set_rules(index, own->texts()); !set) return set;
        if (auto made = destination_.make_folder(index); !made) return made;
        return destination_[index].fresh ? Result<>{Ok{}} : leftovers_.look_in(index);
    }

    Result<> link(uint32_t index) {
        auto made = destination_.make_link(index, names_.next());
        if (!made) return made.error();
        ++(*made ? tally_.files : tally_.unchanged);
        if (*made) would_copy(index);
        return Ok{};
    }

    Result<> compare_file(const Item& item, uint32_t index) {
        auto there = destination_.look(index);
        if (!there) return there.error();
        auto wants = destination_.wants(index, *there);
        if (!wants) return wants.error();
        if (!*wants) {
            ++tally_.unchanged;
            return Ok{};
        }
        destination_[index].state = Entry::State::wanted;
        tally_.bytes_total += item.size;
        if (settings_.dry_run) ++tally_.files;
        would_copy(index);
        return Ok{};
    }

    void would_copy(uint32_t index) {
        if (settings_.dry_run) tally_.copies.push_back(destination_.path_of(index));
    }

    // --- parts that earlier runs have left ---

    Result<> adopt_parts() {
        for (const auto& item : items_) {
            uint32_t index = index_of(item);
            if (destination_[index].state != Entry::State::wanted || item.size < resume_bytes_min) continue;
            auto where = destination_.place(index);
            if (!where) return where.error();
            for (const auto& name : leftovers_.parts_of(index))
                if (parts_[index].bytes == 0) parts_[index] = adopt(item, {where->folder, name}, where->name);
        }
        return Ok{};
    }

    struct Part {
        std::string name;
        uint64_t bytes = 0;
    };
    // Nothing where it is no part of this file. One that is gets a name of this run's.
    Part adopt(const Item& item, const Place& left, const std::string& name) {
        UniqueFd part = open_part(left);
        off_t size = part ? ::lseek(part.get(), 0, SEEK_END) : 0;
        if (size < 0 || static_cast<uint64_t>(size) > item.size) return {};
        uint64_t bytes = bytes_to_keep(static_cast<uint64_t>(size));
        if (bytes == 0 || ::lseek(part.get(), 0, SEEK_SET) != 0) return {};
        std::string hash = hash_here(part, bytes), own = names_.next(name, item);
        if (hash.empty() || hash != hash_there(sftp_, source(item), bytes)) {
            if (!hash.empty()) ::unlinkat(left.fd(), left.name.c_str(), 0);
            return {};
        }
        if (::renameat(left.fd(), left.name.c_str(), left.fd(), own.c_str()) != 0) return {};
        return {own, bytes};
    }

    // --- what arrives ---

    Result<> fetch_files() {
        return copy_files<Fetching>(
            fetching_, [this](const Item& item) { return begin(item); },
            [this](const FetchingPtr& file) { return ask_piece(file); });
    }

    Result<> begin(const Item& item) {
        uint32_t index = index_of(item);
        if (destination_[index].state != Entry::State::wanted) return Ok{};
        auto where = destination_.place_to_write(index);
        if (!where) return where.error();
        auto file = std::make_shared<Fetching>();
        file->index = index, file->item = item, file->place = std::move(*where);
        const Part& part = parts_[index];
        bool goes_on = part.bytes > 0;
        file->temporary = goes_on ? part.name : names_.next(file->place.name, item);
        file->asked = part.bytes;
        tally_.bytes_total -= part.bytes;
        file->target.reset(::openat(file->place.fd(), file->temporary.c_str(),
                                    O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (goes_on ? 0 : O_CREAT | O_EXCL), 0600));
        if (!file->target) return write_error(settings_, told(file), errno);
        (void)lock_part(file->target.get());
        sftp_.open_file(source(item), ssh::Open::read, [this, file](ssh::Reply reply) {
            if (reply.ok())
                file->handle = reply.bytes;
            else
                pass_over(file, unreadable_there(reply, source(file->item), settings_.machine));
        });
        fetching_.push_back(file);
        return Ok{};
    }

    // Asks as far as the size seen in the listing, and one piece beyond, which finds the end.
    bool ask_piece(const FetchingPtr& file) {
        if (file->handle.empty() || file->end_seen || file->over || sftp_.crowded() || failed_) return false;
        if (file->asked > file->item.size && file->reads > 0) return false;
        uint64_t offset = file->asked;
        file->asked += ssh::sftp_piece_bytes;
        ask(file, offset, ssh::sftp_piece_bytes);
        return true;
    }

    void ask(const FetchingPtr& file, uint64_t offset, uint32_t length) {
        ++file->reads;
        sftp_.read(file->handle, offset, length, [this, file, offset, length](ssh::Reply reply) {
            --file->reads;
            take_piece(file, offset, length, reply);
            if (file->end_seen && file->reads == 0 && !file->over) look_again(file);
        });
    }

    void take_piece(const FetchingPtr& file, uint64_t offset, uint32_t length, const ssh::Reply& reply) {
        if (file->over) return;
        if (reply.status == ssh::Status::end) {
            file->end_seen = true;
            return;
        }
        if (!reply.ok()) return pass_over(file, unreadable_there(reply, source(file->item), settings_.machine));
        uint64_t got = reply.bytes.size();
        // It has grown, or its server makes it up.
        if (got > length || offset > file->item.size || got > file->item.size - offset) return changed(file);
        ssize_t wrote = ::pwrite(file->target.get(), reply.bytes.data(), got, static_cast<off_t>(offset));
        if (wrote != static_cast<ssize_t>(got)) return give_up(file, wrote < 0 ? errno : ENOSPC);
        tally_.bytes += got;
        // A server may answer with less than was asked for; the rest is asked for again.
        if (got < length && got > 0) ask(file, offset + got, length - static_cast<uint32_t>(got));
    }

    // Only what is still as it was listed is what we have read.
    void look_again(const FetchingPtr& file) {
        sftp_.stat_handle(file->handle, [this, file](ssh::Reply reply) {
            if (file->over) return;
            Item now = item_of("", reply.attributes);
            if (!reply.ok() || now.size != file->item.size || now.mtime != file->item.mtime) return changed(file);
            conclude(file);
        });
    }

    void changed(const FetchingPtr& file) { pass_over(file, changes(settings_.machine + ":" + source(file->item))); }

    // A file that cannot be read is no reason to leave the others there.
    void pass_over(const FetchingPtr& file, const Error& error) {
        if (file->over) return;
        throw_away(file);
        if (!file->handle.empty()) sftp_.close(file->handle, [](ssh::Reply) {});
        tally_.unreadable.push_back(error);
    }

    void give_up(const FetchingPtr& file, int error) {
        throw_away(file);
        fail(write_error(settings_, told(file), error));
    }

    void throw_away(const FetchingPtr& file) {
        file->over = true;
        ::unlinkat(file->place.fd(), file->temporary.c_str(), 0);
    }

    void conclude(const FetchingPtr& file) {
        file->over = true;
        sftp_.close(file->handle, [](ssh::Reply) {});
        bool replaces = destination_[file->index].replaces_folder;
        if (int error = put_in_place(file->place, file->target.get(), file->temporary, file->item, replaces))
            return fail(write_error(settings_, told(file), error));
        ++tally_.files;
    }

    // --- the end ---

    Result<> remove_extra() {
        if (!settings_.remove_extra || tally_.nothing_removed) return Ok{};
        auto removed = [this](const std::string& path) {
            ++tally_.removed;
            if (settings_.dry_run) tally_.removals.push_back(path);
        };
        return destination_.remove_extra(removed, [this](const Error& error) { tally_.unreadable.push_back(error); });
    }

    Result<> finish() {
        leftovers_.sweep();
        return destination_.finish_folders();
    }

    Destination destination_{settings_};
    Leftovers leftovers_{destination_};
    Names names_;
    std::map<uint32_t, Part> parts_;  // that this run goes on with
    std::list<FetchingPtr> fetching_;
};

}  // namespace

Result<Tally> download(ssh::Sftp& sftp, const SyncSettings& settings, const Watch& watch) {
    return Download{sftp, settings, watch}.run();
}

}  // namespace tnr::sync
