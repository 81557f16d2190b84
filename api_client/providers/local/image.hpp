// What a machine boots from. Our own image (packaging/image/build, whose text is part of this program) is built
// once and kept under the cache folder, named by the script's hash; `--image` names another one.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::local {

struct Image {
    std::filesystem::path disk = {};
    std::filesystem::path kernel = {}, initrd = {};  // empty: the disk boots by itself
    bool ours_to_share = false;  // never written again, so that machines' disks may be layers above it
};

using OnStep = std::function<void(const std::string& step)>;

// Our own image: built when it is not there. Waits for another process that is building it. Images in the cache that
// nobody has asked for in 30 days are removed (other versions of tnr had other images).
Result<Image> default_image(const std::filesystem::path& cache, const OnStep& on_step);

// The kernel of our own image if it has been built, else empty: the KVM probe wants one.
std::filesystem::path cached_kernel(const std::filesystem::path& cache);

// A folder with disk.qcow2, vmlinuz and initrd.img (what packaging/image/build makes), or a disk image file, in any
// format of qemu-img's, that boots by itself and has cloud-init in it.
Result<Image> image_at(const std::filesystem::path& path);

// Puts the machine's own disk, kernel and initrd into its folder, which then needs nothing outside it: the cache
// may be emptied at any time.
Result<> install(const Image& image, const std::filesystem::path& machine_folder, int disk_gib);

// A copy of a disk without the layers below it; nobody may be writing to it.
Result<> copy_flat(const std::filesystem::path& disk, const std::filesystem::path& copy);
// A disk that is as large already stays as it is.
Result<> grow_disk(const std::filesystem::path& disk, int disk_gib);

}  // namespace tnr::local
