// `tnr doctor`: everything that a session needs, looked at in the order in which one thing needs the other, and how to
// mend each. Nothing is changed.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "api_client/base/descriptors.hpp"
#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "api_client/base/text.hpp"
#include "api_client/providers/local/kvm_probe.hpp"
#include "cli/commands/commands.hpp"
#include "cli/config.hpp"
#include "cli/install/embedded.hpp"
#include "cli/json_out.hpp"
#include "cli/side_by_side.hpp"
#include "cli/ssh_config.hpp"
#include "cli/target.hpp"
#include "cli/ui/time.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {
namespace {

// Signed requests are refused from five minutes on (AWS: 15); a clock that is cared for is within a second.
constexpr int64_t skew_doubtful_s = 30, skew_bad_s = 240;
// The image of local machines has 400 MB, and building it takes as much again.
constexpr uint64_t space_doubtful_bytes = uint64_t{2} << 30, space_bad_bytes = uint64_t{100} << 20;

enum class Finding { good, doubtful, bad, skipped };

struct Check {
    std::string name;
    Finding finding = Finding::good;
    std::string what, mend = {};
};

// One provider, and what it answered.
struct AskedIdentity {
    std::string name, date = {};  // of its last reply
    Result<std::unique_ptr<Provider>> provider = std::unique_ptr<Provider>{};
    Result<std::string> who = std::string{};
};

Check bad_check(const std::string& name, const Error& error) {
    return {name, Finding::bad, error.what, error.hint};
}

std::string word_of(Finding finding) {
    switch (finding) {
        case Finding::good:
            return "good";
        case Finding::doubtful:
            return "doubtful";
        case Finding::bad:
            return "bad";
        case Finding::skipped:
            return "skipped";
    }
    return "";
}

// The folder itself, or the one in which it would be made.
std::string existing_folder(std::string path) {
    std::error_code failed;
    while (!path.empty() && !std::filesystem::exists(path, failed)) path = std::filesystem::path(path).parent_path();
    return path.empty() ? "/" : path;
}

class Doctor {
public:
    explicit Doctor(Session& session) : session_(session) {}

    std::vector<Check> run() {
        using Look = void (Doctor::*)();
        for (Look look :
             {&Doctor::look_at_version, &Doctor::look_at_folders, &Doctor::look_at_space, &Doctor::look_at_config,
              &Doctor::look_at_records, &Doctor::look_at_keys, &Doctor::look_at_network, &Doctor::look_at_clouds,
              &Doctor::look_at_pools, &Doctor::look_at_clock, &Doctor::look_at_local}) {
            if (interrupt::interrupted()) break;
            (this->*look)();
        }
        progress_.end();
        return checks_;
    }

private:
    void add(Check check) { checks_.push_back(std::move(check)); }

    void look_at_version() {
        size_t carried = install::embedded_files().size();
        std::string what = "tnr " + control::version() + ", carries " + counted(carried, "file") + " for machines";
        if (carried > 1) return add({"version", Finding::good, what});
        add({"version", Finding::bad, what + ": it was built without its libraries", "install a released tnr"});
    }

    void look_at_folders() {
        for (const auto& folder : {session_.config_folder, session_.state_folder, session_.cache_folder}) {
            std::string there = existing_folder(folder);
            if (::access(there.c_str(), W_OK | X_OK) == 0) continue;
            return add({"folders", Finding::bad, there + " cannot be written to",
                        "make it yours: `sudo chown -R $(id -un) " + there + "`"});
        }
        add({"folders", Finding::good,
             session_.config_folder + " and " + session_.state_folder + " can be written to"});
    }

    void look_at_space() {
        Check least{"disk space", Finding::good, ""};
        uint64_t smallest = UINT64_MAX;
        for (const auto& folder : {session_.state_folder, session_.cache_folder}) {
            struct statvfs found = {};
            std::string there = existing_folder(folder);
            if (::statvfs(there.c_str(), &found) != 0) continue;
            uint64_t bytes = uint64_t{found.f_bavail} * found.f_frsize;
            if (bytes >= smallest) continue;
            smallest = bytes;
            least.what = ui::bytes_text(static_cast<double>(bytes)) + " free at " + there;
        }
        if (smallest < space_doubtful_bytes) least.finding = Finding::doubtful;
        if (smallest < space_bad_bytes) least.finding = Finding::bad;
        if (least.finding != Finding::good)
            least.mend = "free some; local machines' images are in " + session_.cache_folder + "/images";
        add(least);
    }

    void look_at_config() {
        std::string list;
        for (const auto& setting : settings()) {
            std::string value;
            if (auto good = default_to(session_, setting.name, value); !good)
                return add(bad_check("config", good.error()));
            if (!value.empty()) list += (list.empty() ? "" : ", ") + setting.name + "=" + value;
        }
        add({"config", Finding::good, list.empty() ? "no defaults of your own" : list});
    }

    void look_at_records() {
        auto all = session_.records().all();
        if (!all.damaged.empty()) return add(bad_check("machines", all.damaged.front().error));
        size_t unfinished = 0;
        std::string first;
        for (const auto& record : all.records)
            if (record.step != Step::proven && unfinished++ == 0) first = record.name;
        std::string what = std::to_string(all.records.size()) + " known here";
        if (unfinished == 0) return add({"machines", Finding::good, what});
        add({"machines", Finding::doubtful, what + ", " + std::to_string(unfinished) + " not set up to the end",
             "`tnr start " + first + "` continues, `tnr status` shows all"});
    }

    void look_at_keys() {
        const auto records = session_.records().all().records;
        size_t keys = 0;
        for (const auto& record : records) {
            if (record.step < Step::ordered) continue;
            auto key = login_key(record, session_.config_folder);
            if (!key) return add(bad_check("ssh key", key.error()));
            ++keys;
        }
        add({"ssh key", Finding::good,
             keys == 0 ? "none yet; `tnr start` makes one for each machine"
                       : counted(keys, "machine") + " can be opened with keys in " + session_.config_folder});
    }

    // Nothing is sent: the kernel only looks for a way there.
    void look_at_network() {
        const UniqueFd socket = make_socket(AF_INET, SOCK_DGRAM, Waits::yes);
        sockaddr_in somewhere{};
        somewhere.sin_family = AF_INET;
        somewhere.sin_port = htons(443);
        ::inet_pton(AF_INET, "192.0.2.1", &somewhere.sin_addr);  // an address that is nobody's
        bool way = ::connect(socket.get(), reinterpret_cast<sockaddr*>(&somewhere), sizeof somewhere) == 0;
        std::string proxies;
        for (const char* name : {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
            if (session_.world.variable && !session_.world.variable(name).empty())
                proxies += (proxies.empty() ? "" : ", ") + std::string(name);
        std::string what = proxies.empty() ? "" : "; clouds are asked through " + proxies;
        if (way) return add({"network", Finding::good, "there is a way to the Internet" + what});
        add({"network", Finding::doubtful, "there is no way to the Internet, over IPv4" + what,
             "connect this computer; machines at local need no network"});
    }

    // All at once: one that hangs must not hold up the others.
    void look_at_clouds() {
        std::vector<AskedIdentity> all;
        all.reserve(session_.provider_names.size());  // the questions point into it
        std::vector<std::function<void()>> questions;
        auto heard = session_.world.http.on_date;
        for (const auto& name : session_.provider_names) {
            auto& asked = all.emplace_back(AskedIdentity{name});
            session_.world.http.on_date = [&asked, heard](const std::string& date) {
                asked.date = date;
                if (heard) heard(date);
            };
            asked.provider = open_to_ask(session_, name);
            if (asked.provider) questions.emplace_back([&asked] { asked.who = (*asked.provider)->whoami(); });
        }
        session_.world.http.on_date = heard;
        progress_.begin("asking the clouds", asking_patience);
        side_by_side(session_, questions);
        for (const auto& asked : all) add(identity_check(asked));
    }

    Check identity_check(const AskedIdentity& asked) {
        note_date(asked.date);
        const std::string& name = asked.name;
        if (!asked.provider && asked.provider.error().kind == Error::Kind::auth)
            return {name, Finding::skipped, "not signed in", "`tnr login " + name + "` where you want to use it"};
        if (!asked.provider) return bad_check(name, asked.provider.error());
        return asked.who ? Check{name, Finding::good, "signed in: " + *asked.who} : bad_check(name, asked.who.error());
    }

    // RFC 9110: "Sun, 06 Nov 1994 08:49:37 GMT"
    void note_date(const std::string& date) {
        std::tm parts{};
        const char* end = ::strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
        if (end) note_time(::timegm(&parts), "the clouds'");
    }

    // The first that tells is compared with: clouds are asked first.
    void note_time(int64_t theirs, const std::string& whose) {
        auto now = ui::seconds_of(session_.now());
        if (now && !skew_) skew_ = {*now - theirs, whose};
    }

    void look_at_clock() {
        if (!skew_)
            return add({"clock", Finding::skipped, "not compared: no cloud and no pool told the time",
                        "sign in to one to compare"});
        int64_t off = std::abs(skew_->seconds);
        std::string what =
            off <= 1 ? "agrees with " + skew_->whose
                     : "is " + ui::duration_text(off) + (skew_->seconds > 0 ? " ahead of " : " behind ") + skew_->whose;
        if (off < skew_doubtful_s) return add({"clock", Finding::good, what});
        add({"clock", off < skew_bad_s ? Finding::doubtful : Finding::bad, what,
             "set it by the network: `sudo timedatectl set-ntp true`"});
    }

    void look_at_pools() {
        auto logins = session_.logins().all();
        if (!logins) return add(bad_check("pool", logins.error()));
        if (logins->empty())
            return add({"pool", Finding::doubtful, "signed in to no pool of GPUs",
                        "`tnr-gpu-server user add NAME --token` on the pool's host prints the line to sign in with"});
        for (const auto& login : *logins) add(look_at_pool(login));
    }

    Check look_at_pool(const PoolLogin& login) {
        std::string name = "pool " + login.address;
        progress_.begin("asking the pool at " + login.address, asking_patience);
        auto pool = session_.pool(login);
        auto hello = pool ? (*pool)->hello() : Result<PoolHello>{pool.error()};
        if (!hello) return bad_check(name, hello.error());
        if (hello->time) note_time(*hello->time, "the pool's");
        auto types = (*pool)->types();
        if (!types) return bad_check(name, types.error());
        std::string list;
        for (const auto& type : *types)
            list += (list.empty() ? "" : ", ") + type.name + " " + std::to_string(type.free) + "/" +
                    std::to_string(type.total) + " free";
        if (list.empty()) return {name, Finding::doubtful, "it has no GPUs now", "look at the pool's host"};
        return {name, Finding::good, "answers; " + list};
    }

    // What machines on this computer need. Who has none need not care.
    void look_at_local() {
        auto local = session_.provider("local");
        if (!local) return;
        Order order;
        order.name = "doctor";
        auto ready = (*local)->check(order);
        if (!ready) return add({"qemu", Finding::doubtful, ready.error().what, ready.error().hint});
        add({"qemu", Finding::good, "is there, for machines at local"});
        // A kernel that has run is the only proof; the first machine's start tries one.
        const auto answer = local::kvm_answer(session_.world.cache_folder + "/" + local::kvm_answer_file);
        if (::access("/dev/kvm", R_OK | W_OK) == 0 && answer == false)
            return add(
                {"kvm", Finding::doubtful,
                 "/dev/kvm can be opened, but a kernel did not run under it: machines at local are emulated, "
                 "which is slow",
                 "where this computer is itself a virtual one, ask its provider for nested virtualisation; after "
                 "its next boot it is tried again"});
        if (::access("/dev/kvm", R_OK | W_OK) == 0)
            return add({"kvm", Finding::good, answer ? "works" : "/dev/kvm can be opened; not tried yet", ""});
        bool there = ::access("/dev/kvm", F_OK) == 0;
        add({"kvm", Finding::doubtful,
             std::string(there ? "/dev/kvm is not yours to use" : "there is no /dev/kvm") +
                 ": machines at local are emulated, which is slow",
             there ? "`sudo usermod -aG kvm $(id -un)`, and sign in anew"
                   : "switch virtualisation on in the firmware, or use another provider"});
    }

    Session& session_;
    std::vector<Check> checks_;
    struct Skew {
        int64_t seconds;    // ours is ahead
        std::string whose;  // "the clouds'"
    };
    std::optional<Skew> skew_;
    ui::Progress progress_{session_.screen()};
};

std::string painted_finding(const ui::Paint& paint, Finding finding) {
    switch (finding) {
        case Finding::good:
            return paint.good("ok  ");
        case Finding::doubtful:
            return paint.doubtful("note");
        case Finding::bad:
            return paint.bad("BAD ");
        case Finding::skipped:
            return "-   ";
    }
    return "";
}

Result<> doctor(Session& session) {
    auto checks = Doctor{session}.run();
    if (interrupt::interrupted()) return interrupt::error();
    auto list = nlohmann::json::array();
    size_t bad = 0;
    for (const auto& check : checks) {
        bad += check.finding == Finding::bad;
        list.push_back({{"name", check.name},
                        {"finding", word_of(check.finding)},
                        {"what", check.what},
                        {"mend", or_null(check.mend)}});
        if (session.json) continue;
        session.out << painted_finding(session.out_paint, check.finding) << "  " << check.name << ": "
                    << ui::plain(check.what) << "\n";
        if (!check.mend.empty() && check.finding != Finding::skipped)
            session.out << "        to mend it: " << ui::plain(check.mend) << "\n";
    }
    if (bad > 0) session.exit_code = exit_failed;
    if (session.json)
        print_document(session, "doctor", {{"checks", list}});
    else
        session.out << (bad ? std::to_string(bad) + " to mend\n" : "All that is needed works\n");
    return Ok{};
}

}  // namespace

void add_doctor(Grammar& tnr, Session& session) {
    auto command = tnr.command("doctor", "Look at everything tnr needs, and say how to mend what is wrong");
    command.footer(
        "Looks at this program, its folders, your keys and settings, the network, each cloud that you are signed in "
        "to, the\n"
        "pools, the clock, and what machines on this computer need. Changes nothing. Exit code 1 when something has to "
        "be\n"
        "mended; what is only doubtful leaves it 0.\n\n"
        "Examples:\n  tnr doctor\n  tnr doctor --json | jq '.checks[] | select(.finding == \"bad\")'");
    command.run([&session] { session.result = doctor(session); });
}

}  // namespace tnr::cli
