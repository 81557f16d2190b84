// The list of commands.
#pragma once

#include "cli/grammar.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

// Every command there is, in the order `tnr --help` shows them: for each NAME a function add_NAME, in commands/NAME.cpp,
// that writes down its name, its other names, what it takes and its help. Completion, man pages, the reference and
// "did you mean" read the grammar that comes of it.
#define TNR_COMMANDS(COMMAND) \
    COMMAND(start)            \
    COMMAND(connect)          \
    COMMAND(sync)             \
    COMMAND(status)           \
    COMMAND(gpus)             \
    COMMAND(pool)             \
    COMMAND(offers)           \
    COMMAND(attach)           \
    COMMAND(detach)           \
    COMMAND(stop)             \
    COMMAND(resize)           \
    COMMAND(snapshot)         \
    COMMAND(ports)            \
    COMMAND(ssh_config)       \
    COMMAND(delete)           \
    COMMAND(run)              \
    COMMAND(billing)          \
    COMMAND(budget)           \
    COMMAND(login)            \
    COMMAND(logout)           \
    COMMAND(whoami)           \
    COMMAND(config)           \
    COMMAND(doctor)           \
    COMMAND(support)          \
    COMMAND(version)          \
    COMMAND(completion)       \
    COMMAND(help)

#define TNR_DECLARE_COMMAND(name) void add_##name(Grammar& tnr, Session& session);
TNR_COMMANDS(TNR_DECLARE_COMMAND)
#undef TNR_DECLARE_COMMAND

void add_commands(Grammar& tnr, Session& session);

// Below `tnr login` and `tnr logout`: one command for each cloud.
void add_cloud_logins(Grammar& login, Session& session);
void add_cloud_logouts(Grammar& logout, Session& session);

}  // namespace tnr::cli
