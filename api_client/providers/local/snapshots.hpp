// Copies of local machines' disks: one folder each beside the machines', in the shape of an image folder, so that a
// machine can be made from one (Order::image). Folders appear and disappear by renaming, as machines do.
//
//   disk.qcow2   flat: it needs nothing of its machine     vmlinuz, initrd.img   of machines that have them
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "api_client/vocabulary.hpp"

namespace tnr::local {

class Snapshots {
public:
    explicit Snapshots(std::filesystem::path root) : root_(std::move(root)) {}

    // Of a machine that does not run; its folder's lock is the caller's. A name that is taken is an Error of kind usage.
    Result<> take(const std::filesystem::path& machine, const std::string& name) const;
    std::vector<Snapshot> all() const;
    Result<> remove(const std::string& id) const;  // succeeds when there is none
    // What image_at() takes; nothing when there is no such snapshot.
    std::optional<std::filesystem::path> image(const std::string& id) const;

private:
    std::filesystem::path root_;
};

}  // namespace tnr::local
