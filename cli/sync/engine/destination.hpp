// Where a tree arrives: its entries, and the folders that they go into.
//
// The sender may be hostile. An entry names its folder by number and itself by a single name, so no path can lead out; and folders
// are opened step by step without following links, so no link can either, whoever has put it there. On a machine a link to a
// folder elsewhere stands for that folder when the user copies there (data → /mnt/data): who may sync may do anything there.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "api_client/base/handles.hpp"
#include "cli/sync/engine/ignore.hpp"
#include "cli/sync/engine/session.hpp"
#include "cli/sync/engine/tree.hpp"

namespace tnr::sync {

struct Entry {
    Item item;  // `path` is its name alone
    uint32_t parent = 0;
    uint32_t path_bytes = 0;
    bool fresh = false;            // a folder that was not there before, so nothing is in it
    bool through_link = false;     // a folder that a link leads to
    bool replaces_folder = false;  // --delete: a file where a folder was
    enum class State : uint8_t { settled, wanted, comparing } state = State::settled;
    std::string old_name = {};  // of the old file that it is compared with, in the same folder
    std::shared_ptr<const IgnoreRules> rules = {};
};

// A name in an open folder.
struct Place {
    std::shared_ptr<const UniqueFd> folder;
    std::string name;
    int fd() const { return folder->get(); }
};

class Destination {
public:
    explicit Destination(const SyncSettings& settings) : settings_(settings) {}
    ~Destination() { restore_modes(); }
    Destination(const Destination&) = delete;

    // The next entry, checked. The first is the root, whose place is decided here.
    Result<uint32_t> add(uint64_t parent_and_one, Item item);
    Result<> set_rules(uint64_t index, std::vector<std::string> texts, const std::string& inside = {});
    Entry& operator[](uint32_t index) { return entries_[index]; }
    const Entry& operator[](uint32_t index) const { return entries_[index]; }
    // The name that it has in its folder.
    const std::string& name_of(uint32_t index) const { return index == 0 ? root_name_ : entries_[index].item.path; }
    size_t size() const { return entries_.size(); }

    // What is there now; nothing when its folder is new as well.
    Result<std::optional<Item>> look(uint32_t index);
    Result<Place> place(uint32_t index);
    // The same, where something is about to be written: a folder of the user's own that is read-only is opened for it.
    Result<Place> place_to_write(uint32_t index);
    std::string path_of(uint32_t index) const;
    // An open one. That of the root's parent is the folder beside which a root that is no folder arrives.
    Result<std::shared_ptr<const UniqueFd>> folder(uint32_t index);
    // The folder `path_of` names it in is the destination itself, and was there before.
    bool is_old_root(uint32_t index) const { return index == 0 && root_was_there_; }

    // Whether that file has to come, given what is there. Where only its mode is another one, that is set.
    Result<bool> wants(uint32_t index, const std::optional<Item>& there);
    // Makes the folder unless it is there; in a dry run only says whether it would.
    Result<> make_folder(uint32_t index);
    // Makes the link unless it is there; false: it was.
    Result<bool> make_link(uint32_t index, const std::string& temporary);
    // What is in a folder that was there before.
    Result<std::vector<std::string>> names_in(uint32_t index);

    // Everything that the sender does not have, except what its rules leave out. Says each path that goes or, in a dry run, would;
    // and what does not go though it should.
    Result<> remove_extra(const std::function<void(const std::string&)>& removed,
                          const std::function<void(const Error&)>& failed);
    // Modes and times. Touching what is in a folder changes the folder's time, so this comes last, and the deepest first.
    Result<> finish_folders();
    // Of folders that were opened for writing. The destructor does it as well; who ends the process does it before.
    void restore_modes();
    // Something is in the way, of another kind.
    Error clash(uint32_t index, Kind there) const;

private:
    Result<> begin(const Item& root);
    bool absent(uint32_t index) const;
    std::string path_below(uint32_t index) const;  // the destination
    void open_up(uint32_t index);
    void remember_root_mode(int root, mode_t mode);
    void adopt_root_mode();
    bool leads_outside(uint32_t index);

    const SyncSettings& settings_;
    std::vector<Entry> entries_;
    uint64_t held_ = 0;
    std::string place_;                       // the root's, as the user may read it
    std::shared_ptr<const UniqueFd> beside_;  // the folder that holds the root, where that is no folder
    std::string root_name_;
    bool root_was_there_ = false;
    std::unordered_map<uint32_t, std::shared_ptr<const UniqueFd>> open_;
    std::deque<uint32_t> opened_;                       // oldest first
    std::unordered_map<uint32_t, uint32_t> opened_up_;  // folders, and the modes they had
    UniqueFd root_mode_file_;                           // in the root, for whoever comes after a kill
};

// Whether what is there may stay: same size, same time.
bool same_content(const Item& one, const Item& other);
// Removes a file, or a folder with all in it that `rules` do not protect. 0, ENOTEMPTY when those kept something, or another errno.
int remove_tree(int folder, const std::string& name, const std::string& path, const IgnoreRules* rules);
// Gives it mode and time and its real name, over whatever has that now. 0, or an errno.
int put_in_place(const Place& place, int fd, const std::string& temporary, const Item& item, bool replaces_folder);

}  // namespace tnr::sync
