// Walking a folder on a machine with many requests in flight: each folder is opened, read until its end and closed,
// and its subfolders are opened as soon as they are seen.
#include "cli/sync/sftp_tree.hpp"

#include <algorithm>
#include <limits>

#include "cli/ssh/exec.hpp"
#include "cli/sync/engine/messages.hpp"
#include "cli/sync/engine/temporary.hpp"

namespace tnr::sync {
namespace {

class Walk {
public:
    Walk(ssh::Sftp& sftp, const std::string& root, const std::string& machine, Tally& tally, bool temporaries)
        : sftp_(sftp), root_(root), machine_(machine), unreadable_(tally.unreadable), temporaries_(temporaries) {}

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
        std::erase_if(items_, [](const Item& item) { return item.kind == Kind::link && item.leads_to.empty(); });
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

    void enter(const std::string& path) {
        if (!failed_) folders_.push_back(path);
    }

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
            if (!failed_) read(path, handle);
        });
    }

    void take(const std::string& folder, const ssh::Entry& entry) {
        // A name that is empty or has a slash would lead us elsewhere; what else is no name, the destination refuses.
        if (entry.name == "." || entry.name == ".." || entry.name.empty() || entry.name.find('/') != std::string::npos)
            return;
        if (!temporaries_ && is_temporary(entry.name)) return;
        std::string path = joined(folder, entry.name);
        size_t index = items_.size();
        held_ += sizeof(Item) + path.size();
        if (held_ > held_bytes_max || path.size() > path_bytes_max) {
            if (!failed_) failed_ = nonsense();  // a tree without end
            return folders_.clear();
        }
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
    const bool temporaries_;
    std::vector<Item> items_;
    std::vector<std::string> folders_;  // seen, not opened yet
    uint64_t held_ = 0;
    std::optional<Error> failed_;
};

// What .gitignore and .tnrignore say in a tree on the machine.
class Rules {
public:
    Rules(ssh::Sftp& sftp, const std::string& root, Tree& tree) : sftp_(sftp), root_(root), tree_(tree) {}

    // Takes out of the tree what they leave out, and answers how much that is.
    Result<size_t> apply() {
        for (const auto& item : tree_.items) {
            bool names_some = item.kind == Kind::file &&
                              std::count(std::begin(ignore_files), std::end(ignore_files), name_of(item.path)) > 0;
            if (names_some) read(item.path);
            while (sftp_.crowded())
                if (auto turned = sftp_.turn(); !turned) return turned.error();
        }
        if (auto settled = sftp_.settle(); !settled) return settled.error();
        size_t ignored = 0;
        std::erase_if(tree_.items, [&](const Item& item) { return leave_out(item, ignored); });
        return ignored;
    }

private:
    static std::string_view name_of(const std::string& path) {
        return std::string_view(path).substr(path.rfind('/') + 1);
    }
    // One that cannot be read says nothing, as for git.
    void read(const std::string& path) {
        sftp_.open_file(joined(root_, path), ssh::Open::read, [this, path](ssh::Reply reply) {
            if (reply.ok()) read_on(path, reply.bytes);
        });
    }
    void read_on(const std::string& path, const std::string& handle) {
        sftp_.read(handle, texts_[path].size(), ssh::sftp_piece_bytes, [this, path, handle](ssh::Reply reply) {
            std::string& text = texts_[path];
            text += reply.ok() ? reply.bytes : "";
            if (reply.ok() && !reply.bytes.empty() && text.size() < ignore_bytes_max) return read_on(path, handle);
            text.resize(std::min(text.size(), ignore_bytes_max));
            sftp_.close(handle, [](ssh::Reply) {});
        });
    }

    // In the order of the tree: of a folder's rules, those above it are known.
    bool leave_out(const Item& item, size_t& ignored) {
        if (item.path.empty()) return enter(item, nullptr), false;
        auto above = tree_.rules.find(folder_of(item.path));
        bool folder = item.kind == Kind::folder;
        if (above == tree_.rules.end()) return true;  // in a folder that is left out
        if (above->second && above->second->ignored(item.path, folder)) return ++ignored, true;
        if (folder) enter(item, above->second);
        return false;
    }
    void enter(const Item& folder, const std::shared_ptr<const IgnoreRules>& above) {
        std::vector<std::string> texts;
        for (auto name : ignore_files) texts.push_back(texts_[joined(folder.path, std::string(name))]);
        tree_.rules[folder.path] = IgnoreRules::make(folder.path, texts, above);
    }

    ssh::Sftp& sftp_;
    const std::string root_;
    Tree& tree_;
    std::map<std::string, std::string> texts_;  // by path
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

Result<Tree> local_tree(const SyncSettings& settings, Tally& tally) {
    Tree tree;
    auto walked = walk_tree(settings.from, {settings.ignore, {}}, [&](const Item& item, const auto& rules) {
        tree.items.push_back(item);
        if (item.kind == Kind::folder) tree.rules[item.path] = rules;
        return true;
    });
    if (!walked) return walked.error();
    tally.unreadable = std::move(walked->unreadable);
    tally.ignored = walked->ignored;
    return tree;
}

Result<Tree> remote_tree(ssh::Sftp& sftp, const SyncSettings& settings, Tally& tally) {
    Tree tree;
    auto items = Walk{sftp, settings.from, settings.machine, tally, false}.run();
    if (!items) return items.error();
    tree.items = std::move(*items);
    if (!settings.ignore || tree.items[0].kind != Kind::folder) return tree;
    auto ignored = Rules{sftp, settings.from, tree}.apply();
    if (!ignored) return ignored.error();
    tally.ignored = *ignored;
    return tree;
}

void follow_outside(ssh::Sftp& sftp, const std::string& root, const std::string& link,
                    std::function<void(const ssh::Attributes&)> found) {
    sftp.real_path(root, [&sftp, link, found = std::move(found)](const ssh::Reply& own) {
        std::string inside = own.ok() && !own.names.empty() ? own.names[0].name + "/" : "";
        sftp.real_path(link, [&sftp, link, found, inside](const ssh::Reply& reply) {
            if (inside.empty() || !reply.ok() || reply.names.empty()) return;
            const auto& target = reply.names[0].name;
            const std::string there = target.ends_with('/') ? target : target + "/";
            if (there.starts_with(inside) || inside.starts_with(there)) return;
            sftp.stat(link, [found](const ssh::Reply& leads_to) {
                if (leads_to.ok()) found(leads_to.attributes);
            });
        });
    });
}

Result<std::vector<Item>> everything_in(ssh::Sftp& sftp, const std::string& folder, const std::string& machine,
                                        Tally& tally) {
    return Walk{sftp, folder, machine, tally, true}.run();
}

std::string folder_of(const std::string& path) {
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
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
