// Building, checking and laying out images.
#include "api_client/providers/local/image.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "api_client/providers/local/build_script.hpp"
#include "api_client/providers/local/child.hpp"
#include "api_client/providers/local/files.hpp"

namespace tnr::local {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int tool_limit_ms = 60'000;     // qemu-img on a file's header takes milliseconds
constexpr int copy_limit_ms = 1'800'000;  // a whole disk image, perhaps from a slow disk
constexpr auto unused_limit = std::chrono::days(30);
constexpr const char* parts[] = {"disk.qcow2", "vmlinuz", "initrd.img"};

// The sizes the files must have, written when they were built: a cache that lost a piece is built again.
bool is_whole(const fs::path& folder) {
    auto text = read_file(folder / "sizes");
    std::istringstream sizes(text ? *text : "");
    size_t seen = 0;
    std::error_code failed;
    for (auto [name, size] = std::pair<std::string, uintmax_t>(); sizes >> name >> size; ++seen)
        if (fs::file_size(folder / name, failed) != size || failed) return false;
    return seen == std::size(parts);
}

Image image_in(const fs::path& folder) {
    return {.disk = folder / parts[0], .kernel = folder / parts[1], .initrd = folder / parts[2], .ours_to_share = true};
}

fs::path cached_folder(const fs::path& cache) {
    return cache / "images" / (std::string("debian-12-") + build_script_hash);
}

// What a build that was killed left behind; the lock we hold says that none is running.
void sweep(const fs::path& images) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(images, ignored))
        if (entry.path().filename().string().find(".building.") != std::string::npos)
            fs::remove_all(entry.path(), ignored);
}

// Images that other versions of tnr built (400 MB each) and that nobody has made a machine from for a month.
void remove_unused(const fs::path& images) {
    const auto too_old = fs::file_time_type::clock::now() - unused_limit;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(images, failed)) {
        if (!fs::is_directory(entry.path(), failed)) continue;
        const auto used = fs::last_write_time(entry.path(), failed);
        if (!failed && used < too_old) fs::remove_all(entry.path(), failed);
    }
}

// The folder's image if it is whole. The folder's time is that of its last use, told before we look: whoever removes
// unused images then leaves this one to us.
std::optional<Image> take(const fs::path& folder) {
    std::error_code ignored;
    fs::last_write_time(folder, fs::file_time_type::clock::now(), ignored);
    if (!is_whole(folder)) return std::nullopt;
    remove_unused(folder.parent_path());
    return image_in(folder);
}

// The steps worth telling: the script's own, and those of mmdebstrap's that take long.
void report(const std::string& line, const OnStep& on_step) {
    if (!on_step) return;
    for (const char* told : {"image: ", "I: downloading", "I: extracting", "I: installing"})
        if (line.rfind(told, 0) == 0) on_step("building the machine image, once: " + line.substr(line.find(' ') + 1));
}

// A log that a full disk cuts off is no reason to give up.
void append_line(const UniqueFd& log, std::string line) {
    line += '\n';
    [[maybe_unused]] const ssize_t written = ::write(log.get(), line.data(), line.size());
}

// The image script takes a minute or two, mostly apt's download, which has timeouts of its own: no limit from us.
// It inherits the lock, so that a builder which outlives a killed tnr still keeps others out.
Result<> build(const fs::path& folder, const UniqueFd& lock, const OnStep& on_step) {
    const fs::path script = folder.parent_path() / "build", log = folder.parent_path() / "build.log";
    if (auto written = write_file(script, std::string(build_script)); !written) return written;
    if (auto begun = write_file(log, ""); !begun) return begun;  // in place of whatever is there, a pipe too
    auto log_file = open_file(log, O_WRONLY);
    if (!log_file) return log_file.error();
    std::string complaint;
    auto finished = run({.argv = {"/bin/sh", script.string(), folder.string()},
                         .keep_fd = lock.get(),
                         .on_line = [&](const std::string& line) {
                             append_line(*log_file, line);
                             // The first error is the cause, what follows only repeats that it failed.
                             if (complaint.empty() && line.rfind("E: ", 0) == 0) complaint = line;
                             report(line, on_step);
                         }});
    if (!finished) return finished.error();
    if (finished->exit_code != 0)
        return Error{
            Error::Kind::internal,
            "the machine image could not be built: " + (complaint.empty() ? last_line(finished->output) : complaint),
            "the whole story is in " + log.string()};
    return Ok{};
}

// What qemu-img says of a disk.
Result<json> disk_facts(const fs::path& disk) {
    auto tool = find_tool("qemu-img", "qemu-utils");
    if (!tool) return tool.error();
    auto info = run({.argv = {tool->string(), "info", "--output=json", disk.string()}, .limit_ms = tool_limit_ms});
    if (!info) return info.error();
    const json answer = json::parse(info->output, nullptr, false);
    if (info->exit_code != 0 || !answer.contains("format"))
        return Error{Error::Kind::usage, "'" + disk.string() + "' is not a disk image: " + last_line(info->output)};
    return answer;
}

// "qcow2", "raw", ...: the format qemu-img sees in the file.
Result<std::string> disk_format(const fs::path& disk) {
    auto facts = disk_facts(disk);
    if (!facts) return facts.error();
    return facts->at("format").get<std::string>();
}

// Any file passes for a raw disk; one that boots says so at the end of its first sector.
bool has_boot_signature(const fs::path& disk) {
    std::ifstream file(disk, std::ios::binary);
    char signature[2] = {};
    file.seekg(510).read(signature, 2);
    return signature[0] == '\x55' && signature[1] == '\xaa';
}

Error qemu_img_error(const Finished& finished, const fs::path& disk) {
    Error error{Error::Kind::internal, "cannot make the disk " + disk.string() + ": " + last_line(finished.output)};
    if (finished.output.find("No space left") != std::string::npos) error.hint = file_error("", disk, ENOSPC).hint;
    return error;
}

Result<> qemu_img(std::vector<std::string> words, const fs::path& disk, int limit_ms) {
    auto tool = find_tool("qemu-img", "qemu-utils");
    if (!tool) return tool.error();
    words.insert(words.begin(), tool->string());
    auto finished = run({.argv = words, .folder = disk.parent_path(), .limit_ms = limit_ms});
    if (!finished) return finished.error();
    if (finished->timed_out || finished->exit_code != 0) return qemu_img_error(*finished, disk);
    return Ok{};
}

Result<> install_layer(const Image& image, const fs::path& folder, int disk_gib) {
    if (auto linked = link_or_copy(image.disk, folder / "base.qcow2"); !linked) return linked;
    // The layer names its base without a folder: the machine's folder can be moved.
    return qemu_img({"create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", "disk.qcow2",
                     std::to_string(disk_gib) + "G"},
                    folder / "disk.qcow2", tool_limit_ms);
}

// A stranger's image may be written to in place at any time, which would ruin a layer above it: so it is copied.
Result<> install_copy(const Image& image, const fs::path& folder, int disk_gib) {
    auto format = disk_format(image.disk);
    if (!format) return format.error();
    const fs::path disk = folder / "disk.qcow2";
    if (auto copied =
            qemu_img({"convert", "-q", "-f", *format, "-O", "qcow2", fs::absolute(image.disk).string(), disk.string()},
                     disk, copy_limit_ms);
        !copied)
        return copied;
    // An image larger than the offer stays as large as it is: qemu-img refuses to shrink, and so do we.
    (void)qemu_img({"resize", "-q", "-f", "qcow2", disk.string(), std::to_string(disk_gib) + "G"}, disk, tool_limit_ms);
    return Ok{};
}

}  // namespace

fs::path cached_kernel(const fs::path& cache) {
    const fs::path folder = cached_folder(cache);
    return is_whole(folder) ? image_in(folder).kernel : fs::path();
}

Result<Image> default_image(const fs::path& cache, const OnStep& on_step) {
    const fs::path folder = cached_folder(cache);
    if (auto image = take(folder)) return *image;

    std::error_code failed;
    fs::create_directories(folder.parent_path(), failed);
    if (failed) return file_error("cannot make", folder.parent_path(), failed.value());
    auto lock = lock_file(folder.parent_path() / ".lock", [&] {
        if (on_step) on_step("waiting for the machine image that another tnr is building");
    });
    if (!lock) return lock.error();
    if (auto image = take(folder)) return *image;  // built while we waited

    sweep(folder.parent_path());
    fs::remove_all(folder, failed);
    if (auto built = build(folder, *lock, on_step); !built) return built.error();
    if (auto image = take(folder)) return *image;
    return Error{Error::Kind::internal, "the machine image came out incomplete: " + folder.string()};
}

Result<Image> image_at(const fs::path& path) {
    std::error_code failed;
    if (!fs::exists(path, failed)) return Error{Error::Kind::usage, "image '" + path.string() + "' does not exist"};
    const bool with_kernel = fs::is_directory(path, failed);
    if (!with_kernel && !fs::is_regular_file(path, failed) && !fs::is_block_file(path, failed))
        return Error{Error::Kind::usage, "image '" + path.string() + "' is neither a file nor a disk"};
    Image image{.disk = path};
    if (with_kernel) {
        image = image_in(path);
        image.ours_to_share = false;
        for (const char* part : parts)
            if (!fs::exists(path / part, failed))
                return Error{Error::Kind::usage, "image folder '" + path.string() + "' has no " + part,
                             "packaging/image/build FOLDER makes one"};
    }
    auto format = disk_format(image.disk);
    if (!format) return format.error();
    if (*format == "raw" && !with_kernel && !has_boot_signature(image.disk))
        return Error{Error::Kind::usage, "'" + path.string() + "' is not a disk that boots",
                     "give a cloud image with cloud-init (qcow2 or raw), or a folder made by packaging/image/build"};
    return image;
}

Result<> install(const Image& image, const fs::path& folder, int disk_gib) {
    if (!image.kernel.empty()) {
        if (auto linked = link_or_copy(image.kernel, folder / "vmlinuz"); !linked) return linked;
        if (auto linked = link_or_copy(image.initrd, folder / "initrd.img"); !linked) return linked;
    }
    return image.ours_to_share ? install_layer(image, folder, disk_gib) : install_copy(image, folder, disk_gib);
}

Result<> copy_flat(const fs::path& disk, const fs::path& copy) {
    return qemu_img({"convert", "-q", "-f", "qcow2", "-O", "qcow2", disk.string(), copy.string()}, copy, copy_limit_ms);
}

Result<> grow_disk(const fs::path& disk, int disk_gib) {
    auto facts = disk_facts(disk);
    if (!facts) return facts.error();
    if (facts->value("virtual-size", int64_t{0}) >= int64_t{disk_gib} << 30) return Ok{};
    return qemu_img({"resize", "-q", "-f", "qcow2", disk.string(), std::to_string(disk_gib) + "G"}, disk,
                    tool_limit_ms);
}

}  // namespace tnr::local
