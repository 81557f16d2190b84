// Walking a folder on a machine with many requests in flight: each folder is opened, read until its end and closed,
// and its subfolders are opened as soon as they are seen.
#include "cli/sync/sftp_tree.hpp"

#include <algorithm>
#include <limits>

#include "cli/ssh/exec.hpp"
#include "cli/sync/engine/temporary.hpp"

namespace tnr::sync {
namespace {

class Walk {
public:
    Walk(ssh::Sftp& sftp, const std::string& root, const std::string& machine, Tally& tally)
        : sftp_(sftp), root_(root), machine_(machine), unreadable_(tally.unreadable) {}

    Result<std::vector<Item>> run() {
        // Following the root is stat's way, not lstat's; a home folder is the empty path, which SFTP calls ".".
        sftp_.stat(full(""), [this](ssh::Reply reply) {
            if (!reply.ok()) return fail(reply, "");
            items_.push_back(item_of("", reply.attributes));
            if (items_[0].kind == Kind::folder) enter("");
        });
        while (sftp_.in_flight() > 0 || !folders_.empty()) {
            for (; !folders_.empty() && !sftp_.crowded(); folders_.pop_back()) open(folders_.back());
            if (auto turned = sftp_.turn(); !turned) return turned.error();
        }
        if (failed_) return *failed_;
        std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.path < b.path; });
        return std::move(items_);
    }

private:
    std::string full(const std::string& path) const {
        std::string whole = joined(root_, path);
        return whole.empty() ? "." : whole;
    }

    // The root is what the user has named; what cannot be read below it is passed over.
    void fail(const ssh::Reply& reply, const std::string& path) {
        Error error = unreadable_there(reply, full(path), machine_);
        if (!path.empty())
            unreadable_.push_back(error);
        else if (!failed_)
            failed_ = error;
    }

    void enter(const std::string& path) { folders_.push_back(path); }

    void open(const std::string& path) {
        sftp_.open_folder(full(path), [this, path](ssh::Reply reply) {
            if (!reply.ok()) return fail(reply, path);
            read(path, reply.bytes);
        });
    }

    void read(const std::string& path, const std::string& handle) {
        sftp_.read_folder(handle, [this, path, handle](ssh::Reply reply) {
            if (!reply.ok()) {
                if (reply.status != ssh::Status::end) fail(reply, path);
                return sftp_.close(handle, [](ssh::Reply) {});
            }
            for (const auto& entry : reply.names) take(path, entry);
            read(path, handle);
        });
    }

    void take(const std::string& folder, const ssh::Entry& entry) {
        // A name with a slash would be a server that wants us to write somewhere else.
        if (entry.name == "." || entry.name == ".." || entry.name.empty() || entry.name.find('/') != std::string::npos)
            return;
        if (is_temporary(entry.name)) return;
        std::string path = joined(folder, entry.name);
        size_t index = items_.size();
        items_.push_back(item_of(path, entry.attributes));
        if (items_[index].kind == Kind::folder) enter(path);
        if (items_[index].kind == Kind::link)
            sftp_.read_link(full(path), [this, path, index](ssh::Reply reply) {
                if (!reply.ok() || reply.names.empty()) return fail(reply, path);
                items_[index].leads_to = reply.names[0].name;
            });
    }

    ssh::Sftp& sftp_;
    std::string root_, machine_;
    std::vector<Error>& unreadable_;
    std::vector<Item> items_;
    std::vector<std::string> folders_;  // seen, not opened yet
    std::optional<Error> failed_;
};

}  // namespace

Item item_of(const std::string& path, const ssh::Attributes& attributes) {
    uint32_t mode = attributes.mode.value_or(0);
    Item item{path, kind_of(mode), attributes.size.value_or(0), mode & 0777};
    item.special = (mode & 07000) && item.kind != Kind::link;
    item.mtime = attributes.mtime.value_or(0);
    return item;
}

uint32_t sftp_time(const Item& item) {
    return static_cast<uint32_t>(std::clamp<int64_t>(item.mtime, 0, std::numeric_limits<uint32_t>::max()));
}

Result<std::vector<Item>> local_tree(const std::string& root, bool ignore, Tally& tally) {
    std::vector<Item> items;
    auto walked = walk_tree(root, {ignore, {}}, [&](const Item& item, const IgnoreRules*) {
        items.push_back(item);
        return true;
    });
    if (!walked) return walked.error();
    tally.unreadable = std::move(walked->unreadable);
    tally.ignored = walked->ignored;
    return items;
}

Result<std::vector<Item>> remote_tree(ssh::Sftp& sftp, const std::string& root, const std::string& machine,
                                      Tally& tally) {
    return Walk{sftp, root, machine, tally}.run();
}

Error refusal(const ssh::Reply& reply, const std::string& doing, const std::string& path, const std::string& machine) {
    std::string where = machine + ":" + path;
    switch (reply.status) {
        case ssh::Status::no_such_file:
            return Error{Error::Kind::not_found, doing + " " + where + ": it does not exist there"};
        case ssh::Status::permission_denied:
            return Error{Error::Kind::remote, doing + " " + where + ": permission denied",
                         "copy to the home folder (`" + machine + ":`) and move it with `tnr connect " + machine +
                             " -- sudo mv …`"};
        default:
            return Error{Error::Kind::remote, doing + " " + where + ": " + reply.message};
    }
}

Error unreadable_there(const ssh::Reply& reply, const std::string& path, const std::string& machine) {
    Error error = refusal(reply, "cannot read", path, machine);
    if (reply.status == ssh::Status::permission_denied)
        error.hint =
            "root may: `tnr connect " + machine + " -- sudo chmod a+rX " + ssh::quoted(path) + "`, then sync again";
    return error;
}

}  // namespace tnr::sync
