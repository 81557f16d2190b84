// A line becomes steps; a path is matched by walking the steps and its letters, going back to the last star where it fails.
#include "cli/sync/engine/ignore.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "api_client/base/handles.hpp"

namespace tnr::sync {
namespace {

// No path is longer.
constexpr size_t line_bytes_max = 4096;
constexpr std::string_view special_letters = "*?[\\";

// Trailing spaces count only behind a backslash.
std::string_view without_trailing_spaces(std::string_view line) {
    size_t end = 0;
    for (size_t at = 0; at < line.size(); ++at) {
        if (line[at] == ' ') continue;
        if (line[at] == '\\' && ++at == line.size()) return line;
        end = at + 1;
    }
    return line.substr(0, end);
}

using Class = int (*)(int);
const std::map<std::string_view, Class> classes = {
    {"alnum", ::isalnum}, {"alpha", ::isalpha}, {"blank", ::isblank}, {"cntrl", ::iscntrl},
    {"digit", ::isdigit}, {"graph", ::isgraph}, {"lower", ::islower}, {"print", ::isprint},
    {"punct", ::ispunct}, {"space", ::isspace}, {"upper", ::isupper}, {"xdigit", ::isxdigit},
};

}  // namespace

std::string read_ignore_file(int folder, const std::string& name, Links links) {
    std::string text(ignore_bytes_max, '\0');
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::refused ? O_NOFOLLOW : 0);
    UniqueFd fd{::openat(folder, name.c_str(), flags)};
    ssize_t got = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return text;
}

bool IgnorePattern::parse(std::string_view line, IgnorePattern& pattern) {
    pattern = {};
    if (line.empty() || line[0] == '#' || line.size() > line_bytes_max) return false;
    if (line.back() == '\r') line.remove_suffix(1);
    line = without_trailing_spaces(line.substr(0, line.find('\0')));
    if (!line.empty() && line[0] == '!') {
        pattern.negative_ = true;
        line.remove_prefix(1);
    }
    if (!line.empty() && line.back() == '/') {
        pattern.folders_only_ = true;
        line.remove_suffix(1);
    }
    if (line.empty()) return false;
    pattern.by_name_ = line.find('/') == std::string_view::npos;
    if (line[0] == '/') line.remove_prefix(1);
    size_t plain = std::min(line.find_first_of(special_letters), line.size());
    pattern.literal_ = line.substr(0, plain);
    pattern.read_steps(line.substr(plain));
    return true;
}

void IgnorePattern::read_steps(std::string_view text) {
    for (size_t at = 0; at < text.size(); ++at) {
        char letter = text[at];
        if (letter == '\\') {
            steps_.push_back(++at < text.size() ? Step{What::letter, text[at]} : Step{What::never});
        } else if (letter == '?') {
            steps_.push_back({What::any});
        } else if (letter == '[') {
            at = read_set(text, at);
        } else if (letter == '*') {
            size_t begin = at;
            while (at + 1 < text.size() && text[at + 1] == '*') ++at;
            std::string_view rest = text.substr(at + 1);
            bool whole = (begin == 0 || text[begin - 1] == '/') &&
                         (rest.empty() || rest[0] == '/' || rest.substr(0, 2) == "\\/");
            if (at == begin || (!whole && !by_name_))
                steps_.push_back({by_name_ ? What::all : What::stars});
            else
                steps_.push_back({What::all, 0, !by_name_ && !rest.empty() && rest[0] == '/'});
        } else {
            steps_.push_back({What::letter, letter});
        }
    }
}

// Answers where the set ends. One that never ends, or names no class that there is, matches nothing.
size_t IgnorePattern::read_set(std::string_view text, size_t at) {
    auto letter_at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    auto nothing = [&] {
        steps_.push_back({What::never});
        return text.size();
    };
    std::bitset<256> set;
    bool negated = ++at < text.size() && (text[at] == '!' || text[at] == '^');
    if (negated) ++at;
    int before = -1;  // the letter that a range may begin with
    for (bool first = true;; first = false, ++at) {
        if (at >= text.size()) return nothing();
        if (text[at] == ']' && !first) break;
        if (text[at] == '\\') {
            if (++at >= text.size()) return nothing();
            set.set(letter_at(at));
            before = letter_at(at);
        } else if (text[at] == '-' && before > 0 && at + 1 < text.size() && text[at + 1] != ']') {
            if (text[++at] == '\\' && ++at >= text.size()) return nothing();
            for (int letter = before; letter <= letter_at(at); ++letter) set.set(static_cast<size_t>(letter));
            before = -1;
        } else if (text[at] == '[' && at + 1 < text.size() && text[at + 1] == ':') {
            size_t end = text.find(']', at + 2);
            if (end == std::string_view::npos) return nothing();
            if (end == at + 2 || text[end - 1] != ':') {  // no class after all
                set.set('[');
                before = '[';
                continue;
            }
            auto known = classes.find(text.substr(at + 2, end - 1 - (at + 2)));
            if (known == classes.end()) return nothing();
            for (int letter = 0; letter < 128; ++letter)
                if (known->second(letter)) set.set(static_cast<size_t>(letter));
            at = end;
            before = -1;
        } else {
            set.set(letter_at(at));
            before = letter_at(at);
        }
    }
    if (negated) set.flip();
    sets_.push_back(set);
    steps_.push_back({What::set, 0, false, static_cast<uint16_t>(sets_.size() - 1)});
    return at;
}

bool IgnorePattern::step_matches(const Step& step, char letter) const {
    if (step.what == What::letter) return letter == step.letter;
    if (letter == '/') return false;
    return step.what == What::any || (step.what == What::set && sets_[step.set][static_cast<unsigned char>(letter)]);
}

// The steps that may come next, all followed at once: no pattern takes more than steps times letters.
class IgnorePattern::Places {
public:
    explicit Places(const std::vector<Step>& steps) : steps_(steps), marks_(steps.size() + 1) {}
    bool has(size_t at) const { return marks_[at]; }
    void take(Places& other) { marks_.swap(other.marks_); }
    void clear() { std::fill(marks_.begin(), marks_.end(), 0); }
    // What takes nothing is passed as well.
    void enter(size_t at) {
        if (marks_[at] & entered) return;
        marks_[at] |= entered;
        if (at == steps_.size()) return;
        if (steps_[at].none_too) enter(at + 2);  // the slash goes with the folders that are not there
        if (is_star(steps_[at])) enter(at + 1);
    }
    // A star takes one more.
    void stay(size_t at) {
        marks_[at] |= stayed;
        enter(at + 1);
    }
    static bool is_star(const Step& step) { return step.what == What::stars || step.what == What::all; }

private:
    static constexpr char entered = 1, stayed = 2;
    const std::vector<Step>& steps_;
    std::vector<char> marks_;
};

bool IgnorePattern::run(std::string_view text) const {
    Places now(steps_), next(steps_);
    now.enter(0);
    for (char letter : text) {
        next.clear();
        for (size_t at = 0; at < steps_.size(); ++at) {
            if (!now.has(at)) continue;
            if (Places::is_star(steps_[at]) && (steps_[at].what == What::all || letter != '/')) next.stay(at);
            if (step_matches(steps_[at], letter)) next.enter(at + 1);
        }
        now.take(next);
    }
    return now.has(steps_.size());
}

bool IgnorePattern::matches(std::string_view path, std::string_view name, bool is_folder) const {
    if (folders_only_ && !is_folder) return false;
    std::string_view text = by_name_ ? name : path;
    if (!text.starts_with(literal_)) return false;
    text.remove_prefix(literal_.size());
    if (steps_.empty()) return text.empty();
    if (by_name_ && literal_.empty() && steps_[0].what == What::all) {  // *.o, the usual one
        auto plain = [](const Step& step) { return step.what == What::letter; };
        if (std::all_of(steps_.begin() + 1, steps_.end(), plain)) {
            if (text.size() < steps_.size() - 1) return false;
            text.remove_prefix(text.size() - (steps_.size() - 1));
            for (size_t i = 0; i < text.size(); ++i)
                if (text[i] != steps_[i + 1].letter) return false;
            return true;
        }
    }
    return run(text);
}

std::shared_ptr<const IgnoreRules> IgnoreRules::make(const std::string& folder, const std::vector<std::string>& texts,
                                                     std::shared_ptr<const IgnoreRules> above,
                                                     const std::string& inside) {
    auto rules = std::make_shared<IgnoreRules>();
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    for (size_t file = 0; file < texts.size(); ++file) {
        std::string_view text = texts[file];
        if (text.size() >= ignore_bytes_max) text = text.substr(0, text.rfind('\n') + 1);  // no half line
        if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
        while (!text.empty()) {
            size_t end = std::min(text.find('\n'), text.size());
            IgnorePattern pattern;
            if (IgnorePattern::parse(text.substr(0, end), pattern)) {
                pattern.came_from(file);
                rules->patterns_.push_back(std::move(pattern));
            }
            text.remove_prefix(std::min(end + 1, text.size()));
        }
    }
    if (rules->patterns_.empty()) return above;
    rules->folder_ = folder;
    rules->inside_ = inside;
    rules->texts_ = texts;
    rules->above_ = std::move(above);
    return rules;
}

std::shared_ptr<const IgnoreRules> IgnoreRules::of_folder(int fd, const std::string& folder,
                                                          const std::vector<std::string>& names,
                                                          const std::shared_ptr<const IgnoreRules>& above) {
    std::vector<std::string> texts;
    bool any = false;
    for (auto name : ignore_files) {
        bool there = std::binary_search(names.begin(), names.end(), name);
        texts.push_back(there ? read_ignore_file(fd, std::string(name), Links::refused) : "");
        any = any || there;
    }
    return any ? make(folder, texts, above) : above;
}

bool IgnoreRules::ignored(const std::string& path, bool is_folder) const {
    return decide(path, is_folder, 0);
}

bool IgnoreRules::ignored_though_tracked(const std::string& path, bool is_folder) const {
    return decide(path, is_folder, 1);
}

std::vector<const IgnoreRules*> IgnoreRules::of(const std::string& folder) const {
    std::vector<const IgnoreRules*> own;
    for (const IgnoreRules* rules = this; rules && rules->folder_ == folder; rules = rules->above_.get())
        own.insert(own.begin(), rules);
    return own;
}

bool IgnoreRules::decide(const std::string& path, bool is_folder, size_t first_file) const {
    size_t slash = path.rfind('/');
    std::string_view name = std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
    for (const IgnoreRules* rules = this; rules; rules = rules->above_.get()) {
        std::string whole;
        if (!rules->inside_.empty()) whole = rules->inside_ + "/" + path;
        std::string_view below = whole.empty() ? path : whole;
        if (!rules->folder_.empty()) below.remove_prefix(rules->folder_.size() + 1);
        for (auto pattern = rules->patterns_.rbegin(); pattern != rules->patterns_.rend(); ++pattern)
            if (pattern->file() >= first_file && pattern->matches(below, name, is_folder))
                return !pattern->brings_back();
    }
    return false;
}

}  // namespace tnr::sync
