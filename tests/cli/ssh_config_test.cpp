// `tnr ssh-config`, with the OpenSSH client, scp and rsync that users have, against real servers.
#include "cli/ssh_config.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

// What a shell line prints, and how it ends.
std::pair<int, std::string> shell(const std::string& line) {
    FILE* pipe = ::popen((line + " 2>&1 </dev/null").c_str(), "r");
    REQUIRE(pipe);
    std::string text;
    char piece[4096];
    for (size_t got; (got = std::fread(piece, 1, sizeof piece, pipe)) > 0;) text.append(piece, got);
    int status = ::pclose(pipe);
    return {WEXITSTATUS(status), text};
}

struct SshHome {
    test::FakeSession fake;
    std::string home = fake.folder / "my home%d";
    std::string config = home + "/.ssh/config";
    // OpenSSH asks the password file, not HOME, where ~/.ssh is.
    std::string ssh = "ssh -o BatchMode=yes -F '" + config + "' ";

    SshHome() {
        fake.session.world.home = home;
        fake.session.config_folder = home + "/config";
        fake.session.state_folder = home + "/state";
        auto server = wire::make_key_pair(), own = wire::make_key_pair();
        REQUIRE(fake.session.logins().save({"tcp://127.0.0.1:14900", {server.public_key, own}}));
        REQUIRE(make_folders(home));
    }
    // `name` is this server from now on, and its user's key is ours. ssh reads the .pub first, which start has made.
    void put_at(const std::string& name, const test::Sshd& sshd) {
        auto target = sshd.target();
        auto record = **fake.session.records().find(name);
        record.host_key = target.host_key;
        record.login_key.clear();
        REQUIRE(fake.session.records().save(record));
        REQUIRE(write_file(fake.session.config_folder + "/keys/" + name, ssh::private_file(target.key, "")));
        REQUIRE(remove_file(fake.session.config_folder + "/keys/" + name + ".pub"));
        auto& machine = fake.world.machines.at(record.id);
        fake.world.address = target.host;
        fake.world.ssh_port = target.port;
        machine.user = target.user;
        REQUIRE((*fake.session.provider("local"))->machine(record.id));
    }
};

}  // namespace

TEST_CASE("plain ssh, scp and rsync reach a machine by its name", "[cli][ssh-config]") {
    SshHome world;
    auto& fake = world.fake;
    test::Sshd sshd;
    fake.start_demo();
    world.put_at("demo", sshd);
    CHECK(fake.tnr({"ssh-config"}) == 0);
    CHECK(fake.out.str().find("Host demo\n") == 0);
    REQUIRE(fake.tnr({"ssh-config", "--write"}) == 0);
    CHECK(shell(world.ssh + "demo 'echo from there; exit 7'") == std::make_pair(7, std::string("from there\n")));
    test::write_text(fake.folder / "file", "some bytes\n");
    std::string scp = "scp -q -o BatchMode=yes -F '" + world.config + "' ";
    CHECK(shell(scp + (fake.folder / "file") + " demo:" + (fake.folder / "copy")) == std::make_pair(0, std::string()));
    CHECK(test::read_text(fake.folder / "copy") == "some bytes\n");
    REQUIRE(::mkdir((fake.folder / "tree").c_str(), 0755) == 0);
    test::write_text(fake.folder / "tree/a b", "deep\n");
    test::write_text(fake.folder / "rsh", "#!/bin/sh\nexec " + world.ssh + "\"$@\"\n");
    REQUIRE(::chmod((fake.folder / "rsh").c_str(), 0755) == 0);
    auto rsync = shell("rsync -a -e " + (fake.folder / "rsh") + " " + (fake.folder / "tree") +
                       "/ demo:" + (fake.folder / "twin") + "/");
    CHECK(rsync == std::make_pair(0, std::string()));
    CHECK(test::read_text(fake.folder / "twin/a b") == "deep\n");
}

TEST_CASE("another host key than the planted one ends plain ssh", "[cli][ssh-config]") {
    SshHome world;
    test::Sshd sshd, impostor;
    world.fake.start_demo();
    world.put_at("demo", sshd);
    REQUIRE(world.fake.tnr({"ssh-config", "--write"}) == 0);
    std::string block = world.fake.session.state_folder + "/ssh/demo.conf", text = test::read_text(block);
    std::string port = "Port " + std::to_string(sshd.target().port);
    text.replace(text.find(port), port.size(), "Port " + std::to_string(impostor.target().port));
    test::write_text(block, text);
    auto [code, said] = shell(world.ssh + "demo true");
    CHECK(code == 255);
    CHECK(said.find("Host key verification failed") != std::string::npos);
}

TEST_CASE("a name that begins another reaches its own machine, and goes without the other", "[cli][ssh-config]") {
    SshHome world;
    auto& fake = world.fake;
    test::Sshd first("SetEnv WHO=first\n"), second("SetEnv WHO=second\n");
    REQUIRE(fake.tnr({"ssh-config", "--write"}) == 0);  // machines that start later are included, too
    fake.start_demo("demo");
    fake.start_demo("demo-2");
    // Both servers know one user key each; ssh takes the file that the machine's block names.
    for (auto [name, sshd] : {std::pair<std::string, test::Sshd*>{"demo", &first}, {"demo-2", &second}}) {
        world.put_at(name, *sshd);
        REQUIRE(fake.tnr({"ssh-config", "--write", name}) == 0);
        auto [code, said] = shell(world.ssh + name + " 'echo $WHO'");
        CHECK(said == (sshd == &first ? "first\n" : "second\n"));
    }
    REQUIRE(fake.tnr({"delete", "demo", "--yes"}) == 0);
    CHECK(shell(world.ssh + "demo-2 'echo $WHO'").second == "second\n");
    CHECK(shell(world.ssh + "-G demo").second.find("tnr-demo") == std::string::npos);
    CHECK_FALSE(file_exists(fake.session.state_folder + "/ssh/demo.known_hosts"));
}

TEST_CASE("the user's own configuration stays as it is, but for one line at its top", "[cli][ssh-config]") {
    SshHome world;
    auto& fake = world.fake;
    const std::string own = "Host *\n    User somebody\n    Port 1\n";
    REQUIRE(make_folders(world.home + "/.ssh"));
    REQUIRE(make_folders(world.home + "/dotfiles"));
    REQUIRE(write_file(world.home + "/dotfiles/ssh", own, 0644));
    REQUIRE(::symlink("../dotfiles/ssh", world.config.c_str()) == 0);
    test::Sshd sshd;
    fake.start_demo();
    world.put_at("demo", sshd);
    for (int i = 0; i < 3; ++i) REQUIRE(fake.tnr({"ssh-config", "--write"}) == 0);
    std::string text = test::read_text(world.home + "/dotfiles/ssh");
    CHECK(text.substr(text.size() - own.size()) == own);
    CHECK(text.find("Include") == text.rfind("Include"));
    CHECK(shell(world.ssh + "demo 'echo in'").second == "in\n");  // not as somebody at port 1
    struct stat found = {};
    REQUIRE(::lstat(world.config.c_str(), &found) == 0);
    CHECK(S_ISLNK(found.st_mode));
    REQUIRE(::stat(world.config.c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == 0644);
    REQUIRE(fake.tnr({"ssh-config", "--remove"}) == 0);
    CHECK(test::read_text(world.config) == own);
    CHECK_FALSE(file_exists(fake.session.state_folder + "/ssh/demo.conf"));
}

TEST_CASE("ssh-config tells in JSON what it would write, and of machines that cannot be reached", "[cli][ssh-config]") {
    SshHome world;
    auto& fake = world.fake;
    fake.start_demo();
    auto document = fake.document({"ssh-config"});
    REQUIRE(document["hosts"].size() == 1);
    CHECK(document["hosts"][0]["name"] == "demo");
    CHECK(document["written"].is_null());
    CHECK(fake.document({"ssh-config", "nobody"})["errors"][0]["kind"] == "not_found");
    CHECK(fake.document({"ssh-config", "--write"})["written"] == world.config);
}
