// `tnr whoami`: where one is signed in, as whom, and where that comes from.
#include "cli/commands/cloud_login.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/side_by_side.hpp"
#include "cli/ui/table.hpp"

namespace tnr::cli {
namespace {

struct Identity {
    std::string provider, who, source;
    std::optional<Error> error = {};
    bool signed_in() const { return !who.empty(); }
};

// All at once: one that hangs must not hold up the others.
std::vector<Identity> identities_at(Session& session, const std::vector<Cloud>& clouds) {
    std::vector<Identity> all;
    all.reserve(clouds.size());  // the questions point into it
    std::vector<std::function<void()>> questions;
    std::vector<std::unique_ptr<Provider>> providers;
    for (const Cloud& cloud : clouds) {
        Identity& identity = all.emplace_back(Identity{cloud.name, "", ""});
        auto credentials = credentials_for(session, cloud);
        if (!credentials) identity.error = credentials.error();
        if (!credentials || !*credentials) continue;
        identity.source = (*credentials)->source;
        providers.push_back(open_to_ask(session, cloud, **credentials));
        questions.emplace_back([&identity, provider = providers.back().get()] {
            auto who = provider->whoami();
            if (who) identity.who = *who;
            if (!who) identity.error = who.error();
        });
    }
    ui::Progress progress(session.screen());
    progress.begin("asking who you are", asking_patience);
    side_by_side(session, questions);
    progress.end();
    return all;
}

void print_identities(Session& session, const std::vector<Identity>& all) {
    std::vector<Trouble> troubles;
    for (const auto& each : all)
        if (each.error) troubles.push_back({each.provider, *each.error});
    if (session.json) {
        auto list = nlohmann::json::array();
        for (const auto& each : all)
            list.push_back({{"provider", each.provider},
                            {"signed_in", each.signed_in()},
                            {"who", or_null(each.who)},
                            {"source", or_null(each.source)}});
        return print_document(session, "whoami", {{"providers", list}}, troubles);
    }
    std::vector<std::vector<std::string>> rows = {{"PROVIDER", "WHO", "FROM"}};
    for (const auto& each : all)
        rows.push_back({each.provider,
                        each.signed_in() ? each.who
                        : each.error     ? "error"
                                         : "not signed in",
                        each.source});
    ui::print_table(session.out, rows, session.out_paint);
    tell_troubles(session, troubles);
}

}  // namespace

Result<> whoami(Session& session, const std::string& name) {
    if (name.empty()) {
        print_identities(session, identities_at(session, clouds()));
        return Ok{};
    }
    auto cloud = find_cloud(name);
    if (!cloud) return cloud.error();
    const Identity identity = identities_at(session, {*cloud}).front();
    if (identity.error) return *identity.error;
    if (!identity.signed_in())
        return Error{Error::Kind::auth, "you are not signed in to " + name, "run `tnr login " + name + "`"};
    print_identities(session, {identity});
    return Ok{};
}

void add_whoami(Grammar& tnr, Session& session) {
    auto name = std::make_shared<std::string>();
    auto command = tnr.command("whoami", "Show which clouds you are signed in to, and as whom");
    command.option("provider", *name, "Only there; ends with 4 when you are not signed in");
    command.footer(
        "Asks the clouds, so it also shows a token that has expired: it then ends with 4, and with 1 when a cloud "
        "does\n"
        "not answer. Where you have not signed in is no error.\n"
        "Pools of GPUs are not among them: `tnr status` shows those that you are signed in to, `tnr doctor` whether "
        "they "
        "answer.\n\nExamples:\n  tnr whoami\n  tnr whoami hetzner");
    command.run([&session, name] { session.result = whoami(session, *name); });
}

}  // namespace tnr::cli
