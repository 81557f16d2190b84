// Signing in to a cloud: the secret is read, shown to the cloud by a call that changes nothing, and only then kept.
#include "cli/commands/cloud_login.hpp"

#include <termios.h>
#include <unistd.h>

#include <iterator>

#include "api_client/tool_files.hpp"
#include "cli/ask.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"

namespace tnr::cli {
namespace {

// What is typed is not shown while this lives.
class NoEcho {
public:
    explicit NoEcho(bool on_terminal) : active_(on_terminal && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
        if (!active_) return;
        termios quiet = before_;
        quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
        ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    }
    ~NoEcho() {
        if (active_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
    }
    NoEcho(const NoEcho&) = delete;
    NoEcho& operator=(const NoEcho&) = delete;

private:
    termios before_ = {};
    bool active_;
};

Result<std::string> ask_file(Session& session, const Cloud& cloud, const Cloud::Secret& secret) {
    std::string text, path = "stdin";
    if (session.in_is_terminal) {
        auto answer = ask(session, "File with the " + secret.what + ": ");
        if (!answer) return answer.error();
        path = answer->value_or("");
        text = small_file(path);
    } else {
        text.assign(std::istreambuf_iterator<char>(session.in), {});
    }
    if (!text.empty()) return text;
    return Error{Error::Kind::usage, "no " + secret.what + " could be read from " + path,
                 "`tnr login " + cloud.name + " < FILE`"};
}

Result<std::string> ask_secret(Session& session, const Cloud& cloud, const Cloud::Secret& secret) {
    if (secret.file) return ask_file(session, cloud, secret);
    const auto answer = [&] {
        const NoEcho quiet(session.in_is_terminal);
        return ask(session, secret.what + (secret.optional ? " (may be empty; " : " (") + "not shown): ");
    }();
    if (!answer) return answer.error();
    if (*answer && session.in_is_terminal) session.err << "\n";  // Enter was not shown either
    std::string line = answer->value_or("");
    while (!line.empty() && isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (!line.empty() || secret.optional) return line;
    return Error{Error::Kind::usage, "no " + secret.what + " was given",
                 "it is read from stdin: `tnr login " + cloud.name + " < FILE`"};
}

// "API token is asked for", "access key id, secret access key and, if you have one, session token are asked for, a line each"
std::string asked_for(const Cloud& cloud) {
    std::string words;
    for (const auto& secret : cloud.secrets)
        words += (words.empty() ? "" : ", ") + secret.what + (secret.optional ? " (may be empty)" : "");
    return words + (cloud.secrets.size() == 1 ? " is asked for" : " are asked for, a line each");
}

}  // namespace

Result<> login_cloud(Session& session, const std::string& name) {
    auto cloud = find_cloud(name);
    if (!cloud) return cloud.error();
    if (session.in_is_terminal) session.err << "You get it at " << cloud->where_to_get << "\n";
    Credentials credentials{.source = "what you just gave"};
    for (const auto& secret : cloud->secrets) {
        auto value = ask_secret(session, *cloud, secret);
        if (!value) return value.error();
        if (!value->empty()) credentials.values[secret.name] = *value;
    }
    auto who = open_with(session, *cloud, credentials)->whoami();
    if (!who) return who.error();
    if (auto saved = session.cloud_logins().save(name, credentials); !saved) return saved;
    if (auto standard = cloud->standard(session.world))
        session.err << "note: " << standard->source << " is set and comes first\n";
    if (session.json)
        print_document(session, "login " + name, {{"provider", name}, {"who", *who}, {"signed_in", true}});
    else
        session.out << "Signed in to " << name << ": " << ui::plain(*who) << "\n";
    return Ok{};
}

Result<> logout_cloud(Session& session, const std::string& name) {
    auto cloud = find_cloud(name);
    if (!cloud) return cloud.error();
    if (auto removed = session.cloud_logins().remove(name); !removed) return removed;
    auto standard = cloud->standard(session.world);
    if (standard) session.err << "note: " << standard->source << " still signs you in\n";
    if (session.json)
        print_document(session, "logout " + name,
                       {{"provider", name}, {"who", nullptr}, {"signed_in", standard.has_value()}});
    else
        session.out << "Forgot the key for " << name << " on this computer; your machines there are as they were\n";
    return Ok{};
}

void add_cloud_logins(Grammar& login, Session& session) {
    for (const Cloud& cloud : clouds()) {
        if (cloud.secrets.empty()) continue;
        auto command = login.command(cloud.name, "Sign in to " + cloud.name);
        command.footer("The " + asked_for(cloud) + ", or read from stdin; you get it at\n" + cloud.where_to_get +
                       ".\nThe cloud is asked before anything is stored, in ~/.config/tnr/clouds.json for you alone.\n"
                       "These come first where they are set: " +
                       cloud.sources + "\n\nExamples:\n  tnr login " + cloud.name + "\n  tnr login " + cloud.name +
                       " < FILE");
        command.run([&session, name = cloud.name] { session.result = login_cloud(session, name); });
    }
}

void add_cloud_logouts(Grammar& logout, Session& session) {
    for (const Cloud& cloud : clouds()) {
        if (cloud.secrets.empty()) continue;
        auto command = logout.command(cloud.name, "Forget your key for " + cloud.name);
        command.footer("Your machines there stay, and cost what they cost.\n\nExample:\n  tnr logout " + cloud.name);
        command.run([&session, name = cloud.name] { session.result = logout_cloud(session, name); });
    }
}

}  // namespace tnr::cli
