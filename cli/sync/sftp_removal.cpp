// What --delete takes away where only SFTP is there: a folder is listed whole, and emptied from its deepest end.
#include <set>

#include "cli/sync/sftp_tree.hpp"

namespace tnr::sync {
namespace {

class Removal {
public:
    Removal(ssh::Sftp& sftp, const SyncSettings& settings, const Extra& extra, const IgnoreRules* rules, Tally& tally)
        : sftp_(sftp), settings_(settings), extra_(extra), rules_(rules), tally_(tally) {}

    Result<bool> run() {
        size_t troubles = tally_.unreadable.size();
        std::vector<Extra> all = {extra_};
        if (extra_.kind == Kind::folder)
            if (auto listed = list(all); !listed) return listed.error();
        for (auto each = all.rbegin(); each != all.rend(); ++each) {
            while (sftp_.crowded())
                if (auto turned = sftp_.turn(); !turned) return turned.error();
            if (!staying_.count(each->path)) remove(*each);
        }
        if (auto settled = sftp_.settle(); !settled) return settled.error();
        return staying_.empty() && tally_.unreadable.size() == troubles;
    }

private:
    // A folder before what is in it.
    Result<> list(std::vector<Extra>& all) {
        auto items = everything_in(sftp_, place(extra_.path), settings_.machine, tally_);
        if (!items) return items.error();
        for (const auto& item : *items) {
            if (item.path.empty()) continue;
            Extra each{extra_.path + "/" + item.path, item.kind};
            if (protected_.count(folder_of(each.path)) ||
                (rules_ && rules_->ignored(each.path, each.kind == Kind::folder)))
                protect(each.path);
            all.push_back(std::move(each));
        }
        return Ok{};
    }

    // What is around it stays as well.
    void protect(const std::string& path) {
        protected_.insert(path);
        for (std::string above = path; staying_.insert(above).second && above != extra_.path;
             above = folder_of(above)) {
        }
    }

    void remove(const Extra& each) {
        auto heard = [this, path = place(each.path)](const ssh::Reply& reply) {
            if (!reply.ok() && reply.status != ssh::Status::no_such_file)
                tally_.unreadable.push_back(refusal(reply, "cannot remove", path, settings_.machine));
        };
        if (each.kind == Kind::folder)
            sftp_.remove_folder(place(each.path), heard);
        else
            sftp_.remove(place(each.path), heard);
    }

    std::string place(const std::string& path) const { return joined(settings_.to, path); }

    ssh::Sftp& sftp_;
    const SyncSettings& settings_;
    const Extra& extra_;
    const IgnoreRules* rules_;
    Tally& tally_;
    std::set<std::string> protected_, staying_;
};

}  // namespace

Result<bool> remove_there(ssh::Sftp& sftp, const SyncSettings& settings, const Extra& extra, const IgnoreRules* rules,
                          Tally& tally) {
    return Removal{sftp, settings, extra, rules, tally}.run();
}

}  // namespace tnr::sync
