// What both directions are made of: one SFTP connection, a list of items, the first failure, and a crowd of files that
// are on their way at once.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "cli/sync/copy.hpp"
#include "cli/sync/engine/temporary.hpp"
#include "cli/sync/resume.hpp"
#include "cli/sync/sftp_tree.hpp"

namespace tnr::sync {

class Copying {
protected:
    Copying(ssh::Sftp& sftp, const SyncSettings& settings, const Watch& watch)
        : sftp_(sftp), settings_(settings), watch_(watch) {}

    // The first failure is the one that is told; later ones mostly follow from it.
    void fail(Error error) {
        if (!failed_) failed_ = std::move(error);
    }
    void fail(const ssh::Reply& reply, const std::string& doing, const std::string& path_there) {
        fail(refusal(reply, doing, path_there, settings_.machine));
    }
    Result<> so_far() const { return failed_ ? Result<>{*failed_} : Result<>{Ok{}}; }

    // What there is to copy, and whether that is all: --delete needs to know. `rules_` are the source's.
    Result<> take(Result<Tree> tree) {
        if (!tree) return tree.error();
        items_ = std::move(tree->items);
        rules_ = std::move(tree->rules);
        count_losses();
        return settings_.remove_extra ? check_removal() : Ok{};
    }
    Result<> check_removal() {
        if (items_[0].kind != Kind::folder) return not_a_folder(settings_);
        tally_.nothing_removed = !tally_.unreadable.empty();
        return items_.size() == 1 && tally_.unreadable.empty() ? Result<>{empty_source()} : Result<>{Ok{}};
    }
    void count_losses() {
        for (const auto& item : items_) {
            if (item.kind == Kind::other) ++tally_.others;
            if (item.special) ++tally_.special;
            if (sftp_time(item) != item.mtime) ++tally_.times;
        }
    }
    // Waits until another request may be sent, or until all are answered.
    Result<> room();
    Result<> settled();

    // Each phase takes the next step with all items; the first that fails is the last.
    template <class Direction>
    static Result<> in_order(Direction& direction, std::initializer_list<Result<> (Direction::*)()> phases) {
        for (auto phase : phases)
            if (auto done = (direction.*phase)(); !done) return done;
        return Ok{};
    }

    // Gets every file from `begin`, which puts it into `working`, to its `over`. `move` takes it one piece further and
    // answers whether there may be more to do for it right away.
    template <class File>
    Result<> copy_files(std::list<std::shared_ptr<File>>& working, const std::function<Result<>(const Item&)>& begin,
                        const std::function<bool(const std::shared_ptr<File>&)>& move) {
        auto next = items_.begin();
        while (next != items_.end() || !working.empty()) {
            if (failed_) return *failed_;
            for (; next != items_.end() && working.size() < files_at_once && !sftp_.crowded(); ++next) {
                if (next->kind != Kind::file) continue;
                if (auto begun = begin(*next); !begun) return begun;
            }
            bool moved = false;
            for (auto& file : working)
                while (move(file)) moved = true;
            working.remove_if([](const auto& file) { return file->over; });
            if (!moved || sftp_.crowded())
                if (auto turned = sftp_.turn(); !turned) return turned;
            watch_(tally_);
        }
        return settled();
    }

    ssh::Sftp& sftp_;
    const SyncSettings& settings_;
    const Watch& watch_;
    std::vector<Item> items_;
    std::map<std::string, std::shared_ptr<const IgnoreRules>> rules_;
    std::optional<Error> failed_;
    Tally tally_;
};

}  // namespace tnr::sync
