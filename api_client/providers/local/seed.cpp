// FAT16 with long names, as far as a seed needs it: one sector per cluster, files one after another, all in the
// root folder. Layout: boot sector | FAT | FAT again | root folder | data.
#include "api_client/providers/local/seed.hpp"

#include <cassert>
#include <cstdint>

namespace tnr::local {
namespace {

constexpr size_t sector = 512;
constexpr size_t sectors = 16384;   // 8 MiB: enough clusters to be FAT16 and not FAT12, and room for user data
constexpr size_t fat_sectors = 64;  // 2 bytes for each of 16384 sectors
constexpr size_t root_entries = 64, entry_bytes = 32;
constexpr size_t fat_at = sector, root_at = fat_at + 2 * fat_sectors * sector;
constexpr size_t data_at = root_at + root_entries * entry_bytes;
constexpr uint16_t first_cluster = 2, end_of_chain = 0xffff;
constexpr uint8_t is_archive = 0x20, is_label = 0x08, is_long_name = 0x0f;

void put16(std::string& image, size_t at, size_t value) {
    image[at] = static_cast<char>(value & 0xff);
    image[at + 1] = static_cast<char>(value >> 8 & 0xff);
}

void put32(std::string& image, size_t at, size_t value) {
    put16(image, at, value & 0xffff);
    put16(image, at + 2, value >> 16);
}

void put_text(std::string& image, size_t at, std::string text, size_t width) {
    text.resize(width, ' ');
    image.replace(at, width, text);
}

void put_boot_sector(std::string& image, const std::string& label) {
    image.replace(0, 3, "\xeb\x3c\x90");  // a jump, which readers check for
    put_text(image, 3, "TNR", 8);
    put16(image, 11, sector);
    image[13] = 1;        // sectors per cluster
    put16(image, 14, 1);  // reserved sectors: this one
    image[16] = 2;        // FATs
    put16(image, 17, root_entries);
    put16(image, 19, sectors);
    image[21] = static_cast<char>(0xf8);  // a hard disk
    put16(image, 22, fat_sectors);
    put16(image, 24, 32);  // sectors per track and heads: of no meaning, but mtools wants some
    put16(image, 26, 16);
    image[36] = static_cast<char>(0x80);  // drive number
    image[38] = 0x29;                     // serial number, label and type follow
    put32(image, 39, 0x544e5231);
    put_text(image, 43, label, 11);
    put_text(image, 54, "FAT16", 8);
    put16(image, 510, 0xaa55);
    for (size_t fat = 0; fat < 2; ++fat) {  // clusters 0 and 1 do not exist
        put16(image, fat_at + fat * fat_sectors * sector, 0xfff8);
        put16(image, fat_at + fat * fat_sectors * sector + 2, 0xffff);
    }
}

// The sum that ties a long name to the short one after it.
uint8_t short_name_sum(const std::string& name) {
    uint8_t sum = 0;
    for (char c : name) sum = static_cast<uint8_t>(((sum & 1) << 7) + (sum >> 1) + static_cast<uint8_t>(c));
    return sum;
}

// One of a long name's entries: 13 UTF-16 characters, scattered over three places; 0 ends the name, 0xffff fills.
void put_long_name(std::string& image, size_t at, const std::string& name, size_t part, bool last, uint8_t sum) {
    constexpr size_t places[13] = {1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30};
    image[at] = static_cast<char>((part + 1) | (last ? 0x40 : 0));
    image[at + 11] = is_long_name;
    image[at + 13] = static_cast<char>(sum);
    for (size_t i = 0; i < 13; ++i) {
        const size_t index = part * 13 + i;
        const size_t unit = index < name.size() ? static_cast<uint8_t>(name[index]) : index == name.size() ? 0 : 0xffff;
        put16(image, at + places[i], unit);
    }
}

// Returns where the next entry goes.
size_t put_entry(std::string& image, size_t at, const std::string& name, size_t number, size_t cluster, size_t size) {
    const std::string short_name = "FILE" + std::to_string(1000 + number) + "   ";
    const size_t parts = (name.size() + 12) / 13;
    for (size_t part = parts; part-- > 0; at += entry_bytes)
        put_long_name(image, at, name, part, part == parts - 1, short_name_sum(short_name));
    put_text(image, at, short_name, 11);
    image[at + 11] = is_archive;
    put16(image, at + 16, 0x21), put16(image, at + 18, 0x21), put16(image, at + 24, 0x21);  // 1980-01-01
    put16(image, at + 26, size ? cluster : 0);
    put32(image, at + 28, size);
    return at + entry_bytes;
}

void chain(std::string& image, size_t cluster, size_t clusters) {
    for (size_t i = 0; i < clusters; ++i) {
        const size_t next = i + 1 == clusters ? end_of_chain : cluster + i + 1;
        for (size_t fat = 0; fat < 2; ++fat)
            put16(image, fat_at + fat * fat_sectors * sector + 2 * (cluster + i), next);
    }
}

}  // namespace

std::string fat_image(const std::string& label, const std::vector<std::pair<std::string, std::string>>& files) {
    std::string image(sectors * sector, '\0');
    put_boot_sector(image, label);
    put_text(image, root_at, label, 11);
    image[root_at + 11] = is_label;
    size_t entry = root_at + entry_bytes, cluster = first_cluster;
    for (size_t number = 0; number < files.size(); ++number) {
        const auto& [name, content] = files[number];
        const size_t clusters = (content.size() + sector - 1) / sector;
        const size_t at = data_at + (cluster - first_cluster) * sector;
        assert(name.size() <= 26 && at + content.size() <= image.size() && entry + 3 * entry_bytes <= data_at);
        entry = put_entry(image, entry, name, number, cluster, content.size());
        image.replace(at, content.size(), content);
        chain(image, cluster, clusters);
        cluster += clusters;
    }
    return image;
}

Result<std::string> seed_image(const std::string& name, const std::string& instance_id, const std::string& user_data) {
    if (user_data.size() > user_data_bytes_max)
        return Error{Error::Kind::usage, "user data is " + std::to_string(user_data.size()) + " bytes; at most " +
                                             std::to_string(user_data_bytes_max) + " are allowed"};
    const std::string meta_data = "instance-id: " + instance_id + "\nlocal-hostname: " + name + "\n";
    return fat_image("CIDATA", {{"meta-data", meta_data}, {"user-data", user_data}});
}

}  // namespace tnr::local
