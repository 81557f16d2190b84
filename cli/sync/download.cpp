// Download: walk the tree over there, make folders, fetch files, then set the folders' own modes and times.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "api_client/base/files.hpp"
#include "cli/sync/copying.hpp"

namespace tnr::sync {
namespace {

// One file on its way; its callbacks hold it, so it lives until the last reply.
struct Fetching {
    const Item* item = nullptr;
    UniqueFd target;
    std::string place, temporary, handle;
    uint64_t asked = 0;
    size_t reads = 0;  // not answered yet
    bool end_seen = false;
    bool over = false;
};
using FetchingPtr = std::shared_ptr<Fetching>;

void set_times(const std::string& path, int64_t mtime) {
    timespec times[2] = {{static_cast<time_t>(mtime), 0}, {static_cast<time_t>(mtime), 0}};
    ::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

class Download : Copying {
public:
    Download(ssh::Sftp& sftp, const std::string& machine, const std::string& from, const std::string& to,
             const Watch& watch)
        : Copying(sftp, machine, from, to.empty() ? "." : to, watch) {}

    Result<Tally> run() {
        auto items = remote_tree(sftp_, from_, machine_, tally_);
        if (!items) return items.error();
        items_ = std::move(*items);
        count_losses();
        sweep();
        adopt_parts();
        auto done = in_order(
            *this, {&Download::make_folders, &Download::fetch_files, &Download::make_links, &Download::finish_folders});
        if (done) return tally_;
        // What a lost connection has left of large files is for the next run to go on with.
        bool lost = done.error().kind == Error::Kind::network;
        for (auto& file : fetching_)
            if (!lost || file->item->size < resume_bytes_min) ::unlink(file->temporary.c_str());
        return done.error();
    }

private:
    std::string place(const Item& item) const { return joined(to_, item.path); }
    std::string source(const Item& item) const {
        std::string whole = joined(from_, item.path);
        return whole.empty() ? "." : whole;
    }

    Result<> make_folders() {
        root_was_there_ = file_exists(to_);
        if (size_t slash = to_.rfind('/'); slash != std::string::npos && slash > 0)
            if (auto made = make_way(to_.substr(0, slash)); !made) return made;
        for (const auto& item : items_) {
            if (item.kind != Kind::folder) continue;
            struct stat found;
            // Only the destination itself may be a link: below it one could lead the machine's files anywhere.
            int there = item.path.empty() ? ::stat(place(item).c_str(), &found) : ::lstat(place(item).c_str(), &found);
            if (there == 0 && S_ISDIR(found.st_mode)) continue;
            if (::mkdir(place(item).c_str(), folder_while_filling) != 0)
                return file_error("cannot make folder", place(item), errno);
        }
        return Ok{};
    }

    // What runs that were killed have left in the folders that get something.
    void sweep() {
        want_parts([this](const Item& item) { return place(item); });
        std::set<std::string> folders;
        for (const auto& item : items_)
            if (item.kind == Kind::folder || item.path.empty())
                folders.insert(item.kind == Kind::folder ? place(item) : folder_of(place(item)));
        for (const auto& folder : folders) {
            std::error_code none;
            for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
                struct stat found;
                std::string name = entry.path().filename().string(), path = joined(folder, name);
                if (!is_temporary(name) || ::lstat(path.c_str(), &found) != 0) continue;
                if (!remember_part(folder, name, static_cast<uint64_t>(found.st_size)) && is_abandoned(found.st_mtime))
                    ::unlink(path.c_str());
            }
        }
    }

    void adopt_parts() {
        for (auto part = parts_.begin(); part != parts_.end();) {
            const Item& item = *part->first;
            uint64_t bytes = bytes_to_keep(part->second.bytes);
            std::string hash = bytes ? hash_here(part->second.path, bytes) : "";
            bool right = !hash.empty() && hash == hash_there(sftp_, source(item), bytes);
            std::string own = Copying::temporary(place(item), item);
            bool ours = right && ::rename(part->second.path.c_str(), own.c_str()) == 0;
            if (!right && !hash.empty()) ::unlink(part->second.path.c_str());
            part->second = {own, bytes};
            part = ours ? std::next(part) : parts_.erase(part);
        }
    }

    // With the user's own umask: these folders are theirs, not copies of anything.
    static Result<> make_way(const std::string& path) {
        for (size_t at = 1; at <= path.size(); ++at) {
            if (at < path.size() && path[at] != '/') continue;
            std::string folder = path.substr(0, at);
            if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
                return file_error("cannot make folder", folder, errno);
        }
        return Ok{};
    }

    Result<> fetch_files() {
        for (const auto& item : items_)
            if (item.kind == Kind::file) tally_.bytes_total += item.size;
        return copy_files<Fetching>(
            fetching_, [this](const Item& item) { return begin(item); },
            [this](const FetchingPtr& file) { return ask_piece(file); });
    }

    Result<> begin(const Item& item) {
        struct stat found;
        bool there = ::lstat(place(item).c_str(), &found) == 0;
        if (there && S_ISREG(found.st_mode) && static_cast<uint64_t>(found.st_size) == item.size &&
            static_cast<uint32_t>(found.st_mtime) == item.mtime) {
            ++tally_.unchanged;
            tally_.bytes_total -= item.size;
            if ((found.st_mode & 0777) != item.mode) ::chmod(place(item).c_str(), item.mode);
            return Ok{};
        }
        auto file = std::make_shared<Fetching>();
        file->item = &item;
        file->place = place(item);
        auto part = parts_.find(&item);
        bool goes_on = part != parts_.end();
        file->temporary = goes_on ? part->second.path : Copying::temporary(file->place, item);
        if (goes_on) file->asked = part->second.bytes;
        tally_.bytes_total -= file->asked;
        file->target =
            UniqueFd{::open(file->temporary.c_str(), O_WRONLY | O_CLOEXEC | (goes_on ? 0 : O_CREAT | O_TRUNC), 0600)};
        if (!file->target) return file_error("cannot write", file->place, errno);
        sftp_.open_file(source(item), ssh::Open::read, [this, file](ssh::Reply reply) {
            if (reply.ok())
                file->handle = reply.bytes;
            else
                pass_over(file, reply);
        });
        fetching_.push_back(file);
        return Ok{};
    }

    // Asks as far as the size seen in the listing, and one piece beyond, which finds the end.
    bool ask_piece(const FetchingPtr& file) {
        if (file->handle.empty() || file->end_seen || file->over || sftp_.crowded() || failed_) return false;
        if (file->asked > file->item->size && file->reads > 0) return false;
        uint64_t offset = file->asked;
        file->asked += ssh::sftp_piece_bytes;
        ask(file, offset, ssh::sftp_piece_bytes);
        return true;
    }

    void ask(const FetchingPtr& file, uint64_t offset, uint32_t length) {
        ++file->reads;
        sftp_.read(file->handle, offset, length, [this, file, offset, length](ssh::Reply reply) {
            --file->reads;
            take(file, offset, length, reply);
            if (file->end_seen && file->reads == 0) conclude(file);
        });
    }

    void take(const FetchingPtr& file, uint64_t offset, uint32_t length, const ssh::Reply& reply) {
        if (file->over) return;
        if (reply.status == ssh::Status::end) {
            file->end_seen = true;
            return;
        }
        if (!reply.ok()) return pass_over(file, reply);
        ssize_t wrote =
            ::pwrite(file->target.get(), reply.bytes.data(), reply.bytes.size(), static_cast<off_t>(offset));
        if (wrote != static_cast<ssize_t>(reply.bytes.size()))
            return give_up(file, file_error("cannot write", file->place, wrote < 0 ? errno : ENOSPC));
        tally_.bytes += reply.bytes.size();
        // A server may answer with less than was asked for; the rest is asked for again.
        auto got = static_cast<uint32_t>(reply.bytes.size());
        if (got < length && got > 0) ask(file, offset + got, length - got);
    }

    // A file that cannot be read is no reason to leave the others there.
    void pass_over(const FetchingPtr& file, const ssh::Reply& reply) {
        if (file->over) return;
        file->over = true;
        ::unlink(file->temporary.c_str());
        if (!file->handle.empty()) sftp_.close(file->handle, [](ssh::Reply) {});
        tally_.unreadable.push_back(unreadable_there(reply, source(*file->item), machine_));
    }

    void give_up(const FetchingPtr& file, Error error) {
        file->over = true;
        ::unlink(file->temporary.c_str());
        fail(std::move(error));
    }

    void conclude(const FetchingPtr& file) {
        if (file->over) return;
        file->over = true;
        sftp_.close(file->handle, [](ssh::Reply) {});
        bool good = ::fchmod(file->target.get(), file->item->mode) == 0;
        set_times(file->temporary, file->item->mtime);
        if (!good || ::rename(file->temporary.c_str(), file->place.c_str()) != 0)
            return give_up(file, file_error("cannot write", file->place, errno));
        ++tally_.files;
    }

    Result<> make_links() {
        for (const auto& item : items_) {
            if (item.kind != Kind::link) continue;
            std::string there(item.leads_to.size() + 1, '\0');
            ssize_t length = ::readlink(place(item).c_str(), there.data(), there.size());
            if (length >= 0 && there.substr(0, static_cast<size_t>(length)) == item.leads_to) {
                ++tally_.unchanged;
                continue;
            }
            std::string temporary = Copying::temporary(place(item));
            if (::symlink(item.leads_to.c_str(), temporary.c_str()) != 0)
                return file_error("cannot make link", place(item), errno);
            set_times(temporary, item.mtime);
            if (::rename(temporary.c_str(), place(item).c_str()) != 0) {
                int code = errno;
                ::unlink(temporary.c_str());
                return file_error("cannot make link", place(item), code);
            }
            ++tally_.files;
        }
        return Ok{};
    }

    Result<> finish_folders() {
        return each_folder_upwards([this](const Item& item) -> Result<> {
            if (item.path.empty() && root_was_there_) return Ok{};
            ::chmod(place(item).c_str(), item.mode);
            set_times(place(item), item.mtime);
            return Ok{};
        });
    }

    std::list<FetchingPtr> fetching_;
    bool root_was_there_ = false;
};

}  // namespace

Result<Tally> download(ssh::Sftp& sftp, const std::string& machine, const std::string& from, const std::string& to,
                       const Watch& watch) {
    return Download{sftp, machine, from, to, watch}.run();
}

}  // namespace tnr::sync
