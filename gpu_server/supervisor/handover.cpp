// See handover.hpp.
#include "gpu_server/supervisor/handover.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/pool/log.hpp"

extern char** environ;

namespace tnr::server {

using nlohmann::json;
using std::chrono::milliseconds;

namespace {

// The number of the document's descriptor, for the process that is executed.
constexpr const char* document_variable = "TNR_HANDOVER_DOCUMENT";
// A claim's sessions have a kilobyte or two each; things that processes lend each other a few hundred bytes.
constexpr off_t document_bytes_max = off_t{256} << 20;
constexpr milliseconds children_end_within{10'000}, children_looked_at_every{10};

std::vector<std::string> zero_ended_words(const char* file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    std::vector<std::string> words;
    std::istringstream all(text.str());
    for (std::string word; std::getline(all, word, '\0');) words.push_back(word);
    return words;
}

std::vector<char*> argv_of(const std::vector<std::string>& texts) {
    std::vector<char*> found;
    for (auto& text : texts) found.push_back(const_cast<char*>(text.c_str()));  // exec's signature; it does not write
    found.push_back(nullptr);
    return found;
}

void close_at_exec(int file, bool close) {
    (void)fcntl(file, F_SETFD, close ? FD_CLOEXEC : 0);
}

// Whatever a library has opened without saying that it ends with us.
void close_all_at_exec() {
    std::error_code none;
    for (auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
        int file = std::atoi(entry.path().filename().c_str());
        if (file > STDERR_FILENO) close_at_exec(file, true);
    }
}

Result<std::string> sealed_text(const UniqueFd& file) {
    struct stat status {};
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    if (fstat(file.get(), &status) != 0 || (fcntl(file.get(), F_GET_SEALS) & seals) != seals)
        return badly_handed_over("it is no sealed file");
    if (status.st_size > document_bytes_max) return badly_handed_over("it is too large");
    std::string text(static_cast<size_t>(status.st_size), '\0');
    if (pread(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
        return badly_handed_over(std::strerror(errno));
    return text;
}

bool has_children(std::vector<pid_t>& children) {
    children.clear();
    std::ifstream list("/proc/self/task/" + std::to_string(getpid()) + "/children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
    return !children.empty();
}

}  // namespace

Error badly_handed_over(const std::string& what) {
    return {Error::Kind::internal, "what the earlier server handed over makes no sense: " + what};
}

OwnCommand OwnCommand::read() {
    std::error_code error;
    UniqueFd terminal(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
    OwnCommand own{{}, zero_ended_words("/proc/self/cmdline"), static_cast<bool>(terminal)};
    // As it was called, where that says a place: it may be a link, to another version by then.
    if (!own.arguments.empty() && own.arguments[0].find('/') != std::string::npos)
        own.program = own.arguments[0];
    else
        own.program = std::filesystem::read_symlink("/proc/self/exe", error);
    return own;
}

Handover::Handover() : document_{{"handover", handover_version}} {}

int Handover::keep(UniqueFd file) {
    const int number = file.get();
    if (number >= 0) files_[number] = std::move(file);
    return number;
}

int Handover::keep_copy(int file) {
    return keep(UniqueFd(fcntl(file, F_DUPFD_CLOEXEC, 0)));
}

UniqueFd Handover::take(const json& number) {
    auto found = files_.extract(number.get<int>());
    return found ? std::move(found.mapped()) : UniqueFd();
}

Result<UniqueFd> Handover::to_file() const {
    auto whole = document_;
    auto& files = whole["files"] = json::array();
    for (auto& [number, file] : files_) files.push_back(number);
    const auto text = whole.dump(-1, ' ', false, json::error_handler_t::replace);
    UniqueFd document(memfd_create("handover", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    for (size_t at = 0; at < text.size();) {
        auto written = ::write(document.get(), text.data() + at, text.size() - at);
        if (written <= 0)
            return Error{Error::Kind::internal,
                         std::string("cannot write what is to be handed over: ") + std::strerror(errno)};
        at += static_cast<size_t>(written);
    }
    (void)fcntl(document.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return document;
}

Result<Handover> Handover::from_file(UniqueFd document) {
    auto text = sealed_text(document);
    if (!text) return text.error();
    Handover handover;
    handover.document_ = json::parse(*text, nullptr, false);
    auto whole = reading("document", [&]() -> Result<> {
        for (int file : handover.document_.at("files").get<std::vector<int>>()) {
            if (file <= STDERR_FILENO || file == document.get() || fcntl(file, F_GETFD) < 0)
                return badly_handed_over("descriptor " + std::to_string(file) + " is not there");
            close_at_exec(file, true);
            handover.files_[file] = UniqueFd(file);
        }
        if (handover.document_.at("handover").get<int>() == handover_version) return Ok{};
        return badly_handed_over("it is of another version");
    });
    if (!whole) return whole.error();
    return handover;
}

Result<std::optional<Handover>> Handover::received() {
    const char* told = std::getenv(document_variable);
    if (!told) return std::optional<Handover>();
    const int file = std::atoi(told);
    unsetenv(document_variable);
    const bool there = file > STDERR_FILENO && fcntl(file, F_GETFD) >= 0;
    auto handover = there ? from_file(UniqueFd(file)) : badly_handed_over("there is no document");
    if (handover) return std::optional(std::move(*handover));
    // We have opened nothing yet: all there is was meant for the document's reader.
    (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    return handover.error();
}

Error Handover::execute(const OwnCommand& command) {
    auto document = to_file();
    if (!document) return document.error();
    close_all_at_exec();
    for (auto& [number, file] : files_) close_at_exec(number, false);
    close_at_exec(document->get(), false);
    setenv(document_variable, std::to_string(document->get()).c_str(), 1);
    execve(command.program.c_str(), argv_of(command.arguments).data(), environ);
    Error failed{Error::Kind::internal, "cannot execute " + command.program + ": " + std::strerror(errno)};
    unsetenv(document_variable);
    for (auto& [number, file] : files_) close_at_exec(number, true);
    return failed;
}

// Their sockets are closed by now, so those that can end by themselves do.
void end_all_children() {
    const auto give_up_at = std::chrono::steady_clock::now() + children_end_within;
    std::vector<pid_t> children;
    while (has_children(children) && std::chrono::steady_clock::now() < give_up_at) {
        for (auto child : children) kill_child(child);
        for (auto child : children) (void)waitpid(child, nullptr, WNOHANG);
        std::this_thread::sleep_for(children_looked_at_every);
    }
}

ChildPlan question_for(const OwnCommand& command) {
    ChildPlan plan{command.program, {command.arguments.begin() + 1, command.arguments.end()}, {}};
    for (char** entry = environ; *entry; ++entry) plan.environment.emplace_back(*entry);
    plan.environment.push_back(std::string(handover_question) + "=1");
    return plan;
}

bool is_asked() {
    return std::getenv(handover_question) != nullptr;
}

Result<> answer_question(const Result<>& able) {
    const json answer = able ? json{{"handover", handover_version}, {"version", control::version()}}
                             : json{{"why_not", able.error().what}};
    if (!send_message(child_control_fd, answer)) return Error{Error::Kind::internal, "nobody hears the answer"};
    return able;
}

std::optional<std::string> why_not(const Received& answer) {
    if (answer.what != Received::What::message) return "it does not say that it can take over from this one";
    auto told = json::parse(answer.text, nullptr, false);
    if (told.is_object() && told.contains("why_not"))
        return "it cannot take over: " + (told["why_not"].is_string() ? told["why_not"].get<std::string>() : "");
    auto version = told.is_object() ? told.value("handover", json()) : json();
    if (version == handover_version) return std::nullopt;
    return "it takes over from servers of another kind (" + version.dump() + ", not " +
           std::to_string(handover_version) + ")";
}

}  // namespace tnr::server
