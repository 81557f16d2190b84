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

constexpr uint32_t folder_while_filling = 0700;  // a read-only folder can only be filled before it is one

class Copying {
protected:
    Copying(ssh::Sftp& sftp, std::string machine, std::string from, std::string to, const Watch& watch)
        : sftp_(sftp), machine_(std::move(machine)), from_(std::move(from)), to_(std::move(to)), watch_(watch) {}

    // The first failure is the one that is told; later ones mostly follow from it.
    void fail(Error error) {
        if (!failed_) failed_ = std::move(error);
    }
    void fail(const ssh::Reply& reply, const std::string& doing, const std::string& path_there) {
        fail(refusal(reply, doing, path_there, machine_));
    }
    Result<> so_far() const { return failed_ ? Result<>{*failed_} : Result<>{Ok{}}; }

    void count_losses() {
        for (const auto& item : items_) {
            if (item.special) ++tally_.special;
            if (sftp_time(item) != item.mtime) ++tally_.times;
        }
    }
    // Waits until another request may be sent, or until all are answered.
    Result<> room();
    Result<> settled();

    // Unlike any other run's, whatever the letters are.
    std::string temporary(const std::string& place) { return temporary_name(place, run_, ++number_); }
    std::string temporary(const std::string& place, const Item& item) {
        if (item.size < resume_bytes_min) return temporary(place);
        return temporary_name(place, identity(place, item), first_number_ + ++number_);
    }

    // Parts of large files that an earlier run has left: where, and how much.
    struct Part {
        std::string path;
        uint64_t bytes = 0;
    };
    // Remembers a temporary file that may be a part of an item of ours; false: it is none of ours.
    bool remember_part(const std::string& folder, const std::string& name, uint64_t bytes) {
        auto wanted = wanted_.find(folder + '/' + letters_of(name));
        if (wanted == wanted_.end() || bytes > wanted->second->size) return false;
        Part& part = parts_[wanted->second];
        if (bytes > part.bytes) part = {joined(folder, name), bytes};
        return true;
    }
    // Before the destination's folders are listed; `place` tells where an item goes.
    void want_parts(const std::function<std::string(const Item&)>& place) {
        for (const auto& item : items_) {
            if (item.kind != Kind::file || item.size < resume_bytes_min) continue;
            std::string there = place(item);
            wanted_[folder_of(there) + '/' + identity(there, item)] = &item;
        }
    }
    static std::string folder_of(const std::string& path) {
        size_t slash = path.rfind('/');
        return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    }

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
                if (next->kind == Kind::other) ++tally_.others;
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

    // Touching what is in a folder changes the folder's time, so folders get theirs last, and the deepest first.
    Result<> each_folder_upwards(const std::function<Result<>(const Item&)>& finish) const {
        for (auto item = items_.rbegin(); item != items_.rend(); ++item)
            if (item->kind == Kind::folder)
                if (auto finished = finish(*item); !finished) return finished;
        return Ok{};
    }

    ssh::Sftp& sftp_;
    const std::string machine_, from_, to_;
    const Watch& watch_;
    std::vector<Item> items_;
    std::optional<Error> failed_;
    Tally tally_;
    std::map<const Item*, Part> parts_;  // after adopting: this run's own, and all of `bytes` is right

private:
    const std::string run_ = new_run();
    // For names whose letters are not the run's.
    const size_t first_number_ = first_number();
    size_t number_ = 0;
    std::map<std::string, const Item*> wanted_;  // by folder and letters
};

}  // namespace tnr::sync
