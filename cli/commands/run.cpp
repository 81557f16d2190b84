// `tnr run`: a program on this computer, a GPU from the pool. Our libraries are unpacked into the cache and come first
// in the program's library path; then it takes our place, so its exit code and signals are its own.
#include "cli/commands/run.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "api_client/base/files.hpp"
#include "cli/commands/commands.hpp"
#include "cli/config.hpp"
#include "cli/install/embedded.hpp"
#include "cli/json_out.hpp"
#include "cli/money/budget.hpp"
#include "cli/same_pool.hpp"
#include "cli/timers.hpp"
#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/gpu_config.hpp"

namespace tnr::cli {
namespace {

constexpr int no_program_code = 127, no_start_code = 126;  // as shells say

// A pool on our own loopback takes plain text, so it needs no sign-in.
Result<PoolLogin> login_for(Session& session, const std::string& address) {
    auto login = session.logins().find(address);
    if (login || address.empty()) return login;
    auto endpoint = parse_endpoint(address);
    if (!endpoint) return endpoint.error();
    if (endpoint->loopback()) return PoolLogin{address, {}};
    return login;
}

Result<int64_t> parse_wait(const std::string& text) {
    if (text.empty()) return int64_t{0};
    if (text == "forever") return control::wait_s_max;
    int64_t below_a_minute = 0;
    auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), below_a_minute);
    if (failed == std::errc{} && std::string(rest) == "s" && below_a_minute > 0 && below_a_minute < 60)
        return below_a_minute;
    auto seconds = parse_duration(text, "--wait");
    if (!seconds)
        return Error{Error::Kind::usage, "--wait is no time: '" + text + "'", "it looks like 30s, 5m, 2h or forever"};
    return std::min(*seconds, control::wait_s_max);
}

// Everything we carry, in a folder named by its hash: other versions of tnr keep theirs, programs that run keep
// what they have mapped.
Result<std::string> unpack(const std::string& cache_folder) {
    auto files = install::embedded_files();
    std::string hashes;
    for (const auto& file : files) hashes += file.sha256();
    std::string folder = cache_folder + "/lib/" + install::sha256(hashes).substr(0, 16);
    for (const auto& file : files) {
        std::string path = folder + "/" + file.name;
        if (!file_exists(path))
            if (auto written = write_file(path, std::string(file.bytes), 0755); !written) return written.error();
        std::string bare = path.substr(0, path.rfind(".1"));
        if (bare.size() + 2 == path.size() && !file_exists(bare) && ::symlink((file.name).c_str(), bare.c_str()) != 0 &&
            errno != EEXIST)
            return file_error("cannot make", bare, errno);
    }
    return folder;
}

void put_first(const char* variable, const std::string& folder) {
    const char* old = std::getenv(variable);
    ::setenv(variable, (old && *old ? folder + ":" + old : folder).c_str(), 1);
}

// Configurations of programs that have ended; each is named by its program's process id.
void sweep(const std::string& folder) {
    std::error_code none;
    for (const auto& file : std::filesystem::directory_iterator(folder, none)) {
        int pid = std::atoi(file.path().stem().c_str());
        if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) std::filesystem::remove(file.path(), none);
    }
}

// One run is one claim in the pool, whatever processes it starts: so its name has this process's id, which becomes
// the program's. The keys are in a file for us alone: an environment shows up in /proc and in crash reports.
Result<> prepare_environment(Session& session, const PoolLogin& login, const GpuWish& wish, int64_t wait_s) {
    auto folder = unpack(session.cache_folder);
    if (!folder) return folder.error();
    char host[65] = "";
    ::gethostname(host, sizeof host - 1);
    std::string pid = std::to_string(::getpid()), runs = session.cache_folder + "/run";
    GpuConfig config{login.address, wish.type, wish.count, name_of_run(host, ::getpid()), login.keys, wait_s};
    sweep(runs);
    std::string path = runs + "/" + pid + ".json";
    if (auto written = write_file(path, to_json_text(config), 0600); !written) return written;
    ::setenv("TNR_CONFIG", path.c_str(), 1);
    ::setenv("TNR_POOL", login.address.c_str(), 1);
    ::setenv("TNR_GPU", (wish.type + ":" + std::to_string(wish.count)).c_str(), 1);
    put_first("LD_LIBRARY_PATH", *folder);
    put_first("PATH", *folder);  // nvidia-smi
    return Ok{};
}

// The libraries write it (gpu_client/cuda/profile.hpp). A file that is there is an earlier run's: they would not touch it.
Result<> prepare_profile(const std::string& file) {
    if (file.empty()) return Ok{};
    std::error_code failed;
    auto path = std::filesystem::absolute(file, failed);
    if (!failed && std::filesystem::is_directory(path))
        return Error{Error::Kind::usage, "the profile " + file + " is a folder", "name a file, as out.json"};
    if (::access(path.parent_path().c_str(), W_OK) != 0) return file_error("cannot write", file, errno);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return file_error("cannot replace", file, errno);
    ::setenv("TNR_PROFILE", path.c_str(), 1);
    return Ok{};
}

Result<> become(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::signal(SIGPIPE, SIG_DFL);  // exec would pass on that we ignore it
    ::execvp(arguments[0], arguments.data());
    int code = errno;
    ::signal(SIGPIPE, SIG_IGN);
    return Error{code == ENOENT ? Error::Kind::not_found : Error::Kind::internal,
                 "cannot run " + words[0] + ": " + std::strerror(code),
                 code == ENOENT && words[0].find('/') == std::string::npos
                     ? "for a program in this folder say ./" + words[0]
                     : ""};
}

}  // namespace

std::string name_of_run(std::string host, int64_t process) {
    const std::string begin = "run-", end = "-" + std::to_string(process);
    host.resize(std::min(host.size(), control::name_bytes_max - begin.size() - end.size()));
    auto odd = [](unsigned char c) { return c >= 0x80 || !(std::isalnum(c) || c == '-' || c == '_' || c == '.'); };
    std::replace_if(host.begin(), host.end(), odd, '-');
    return begin + host + end;
}

Result<> run(Session& session, const RunOptions& options) {
    if (session.json && !options.dry_run)
        return Error{Error::Kind::usage, "`tnr run` passes streams through and has no --json",
                     "`tnr run --dry-run --json` tells which GPU it would take"};
    auto wait_s = parse_wait(options.wait);
    if (!wait_s) return wait_s.error();
    std::string address = options.pool, gpu = options.gpu;
    if (auto filled = default_to(session, "pool", address); !filled) return filled;
    if (auto filled = default_to(session, "gpu", gpu); !filled) return filled;
    ui::Progress progress(session.screen());
    progress.begin("asking the pool" + (address.empty() ? "" : " at " + address), asking_patience);
    auto wanted = login_for(session, address);
    if (!wanted) return wanted.error();
    auto opened = open_pool(session, *wanted);
    if (!opened) return opened.error();
    const PoolLogin& login = opened->login;
    auto wish = choose_gpu(*opened->pool, gpu, "tnr run --gpu");
    if (!wish) return wish.error();
    progress.end();
    opened->pool.reset();
    if (auto within = check_budget(session, "", login.address, options.over_budget || options.dry_run); !within)
        return within;
    if (options.dry_run && session.json) {
        print_document(session, "run",
                       {{"dry_run", true},
                        {"program", options.words},
                        {"gpu", gpu_json(wish->type, wish->count)},
                        {"pool", login.address}});
        return Ok{};
    }
    if (options.dry_run) {
        session.out << "Would run " << options.words[0] << " with " << wish->count << " x " << wish->type
                    << " from the pool at " << login.address << "\n";
        return Ok{};
    }
    if (auto prepared = prepare_environment(session, login, *wish, *wait_s); !prepared) return prepared;
    if (auto prepared = prepare_profile(options.profile); !prepared) return prepared;
    auto failed = become(options.words);
    session.exit_code = failed.error().kind == Error::Kind::not_found ? no_program_code : no_start_code;
    return failed;
}

void add_run(Grammar& tnr, Session& session) {
    auto options = std::make_shared<RunOptions>();
    auto command = tnr.command("run", "Run a program on this computer with a GPU from the pool");
    command.option("--gpu", options->gpu, "GPU type, or TYPE:COUNT; may be left out where the pool has one type");
    command.option("--pool", options->pool, "Pool of GPUs, tcp://HOST:PORT; the one last signed in to unless told");
    command.option("--profile", options->profile,
                   "Write what program and GPU do when into this file; https://ui.perfetto.dev opens it");
    command.option("--wait", options->wait,
                   "When all GPUs are in use, wait for one: 5m, or forever; the place in the queue is told on stderr");
    command.flag("--dry-run", options->dry_run, "Only check that the pool has such a GPU");
    command.flag("--over-budget", options->over_budget, "Run it although the budget is used up (`tnr budget`)");
    command.required_words("command", options->words, "After `--`: the program and its arguments");
    command.footer(
        "Ends with the program's own exit code. A pool on 127.0.0.1 needs no sign-in.\n\n"
        "Examples:\n"
        "  tnr run -- ./saxpy\n"
        "  tnr run --wait 5m -- ./saxpy\n"
        "  tnr run --profile out.json -- ./saxpy\n"
        "  tnr run --gpu h100 --pool tcp://127.0.0.1:14900 -- python3 train.py --epochs 3");
    command.run([&session, options] { session.result = run(session, *options); });
}

}  // namespace tnr::cli
