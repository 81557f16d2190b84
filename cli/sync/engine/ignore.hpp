// .gitignore and .tnrignore, by git's own rules.
//
// Both mean the same; where they differ, .tnrignore has the last word. A folder's files say what is left out at and below it,
// and have the last word over those of the folders above. What a folder that is left out contains is never looked at, so
// nothing brings it back, save that .gitignore leaves out nothing that git tracks (repository.hpp).
#pragma once

#include <bitset>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tnr::sync {

// What larger files say beyond this is not obeyed; git's own are a few lines. Those of a folder go into one message.
inline constexpr size_t ignore_bytes_max = size_t{200} << 10;
inline constexpr std::string_view ignore_files[] = {".gitignore", ".tnrignore"};
// What such a file says, as far as it is obeyed; one that cannot be read says nothing, as for git. git follows links to files that
// lie outside of the tree, and no others.
enum class Links { followed, refused };
std::string read_ignore_file(int folder, const std::string& name, Links links);

// One line, understood.
class IgnorePattern {
public:
    // False: the line says nothing.
    static bool parse(std::string_view line, IgnorePattern& pattern);
    // `path` is below the folder whose file this is; `name` is its last part.
    bool matches(std::string_view path, std::string_view name, bool is_folder) const;
    bool brings_back() const { return negative_; }
    // Which of ignore_files has it.
    void came_from(size_t file) { file_ = static_cast<uint8_t>(file); }
    size_t file() const { return file_; }

private:
    enum class What : uint8_t { letter, any, set, stars, all, never };
    struct Step {
        What what;
        char letter = 0;
        bool none_too = false;  // of `all`: "**/" stands for no folder as well
        uint16_t set = 0;       // index into sets_
    };
    class Places;
    void read_steps(std::string_view text);
    size_t read_set(std::string_view text, size_t at);
    bool step_matches(const Step& step, char letter) const;
    bool run(std::string_view text) const;

    bool negative_ = false, folders_only_ = false, by_name_ = false;
    uint8_t file_ = 0;
    std::string literal_;  // what must come first, letter by letter
    std::vector<Step> steps_;
    std::vector<std::bitset<256>> sets_;
};

// The rules that hold in one folder, with those of the folders above it.
class IgnoreRules {
public:
    // `texts` in the order of ignore_files. Null where neither this folder nor those above have any. Rules of a folder above
    // the root are the root's own (`folder` is empty), and `inside` is where the root lies in that folder.
    static std::shared_ptr<const IgnoreRules> make(const std::string& folder, const std::vector<std::string>& texts,
                                                   std::shared_ptr<const IgnoreRules> above,
                                                   const std::string& inside = {});
    // Reads what the open folder has of these files; `names` is what is in it, sorted.
    static std::shared_ptr<const IgnoreRules> of_folder(int fd, const std::string& folder,
                                                        const std::vector<std::string>& names,
                                                        const std::shared_ptr<const IgnoreRules>& above);

    // `path` is below the root, in this folder.
    bool ignored(const std::string& path, bool is_folder) const;
    // The same of what git tracks, which only .tnrignore leaves out.
    bool ignored_though_tracked(const std::string& path, bool is_folder) const;
    // Those that a folder has itself, for the other end; the later have the last word.
    std::vector<const IgnoreRules*> of(const std::string& folder) const;
    const std::vector<std::string>& texts() const { return texts_; }
    const std::string& inside() const { return inside_; }

private:
    bool decide(const std::string& path, bool is_folder, size_t first_file) const;

    std::string folder_, inside_;
    std::vector<std::string> texts_;
    std::vector<IgnorePattern> patterns_;  // a later one has the last word
    std::shared_ptr<const IgnoreRules> above_;
};

}  // namespace tnr::sync
