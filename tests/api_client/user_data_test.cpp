// The login user that a cloud-config document makes.
#include "api_client/providers/local/user_data.hpp"

#include "tests/support/catch.hpp"

using tnr::local::login_user;

TEST_CASE("the login user is the first that user data names", "[user_data]") {
    CHECK(login_user("#cloud-config\nusers:\n  - name: tnr\n    sudo: x\n  - name: other\n") == "tnr");
    CHECK(login_user("#cloud-config\nhostname: a\nusers:\n- default\n- sudo: x\n  name: 'tnr' # me\n") == "tnr");
    CHECK(login_user("#cloud-config\nuser: \"admin\"\n") == "admin");
    CHECK(login_user("#cloud-config\nuser: {\"a\":1}\nusers:\n  - name: tnr\r\n") != "");
    CHECK(login_user("#cloud-config\n{\"users\": [\"default\", {\"name\": \"tnr\"}]}") == "tnr");
    CHECK(login_user("#cloud-config\n{\"user\": \"admin\"}") == "admin");
}

TEST_CASE("a document that names no user leaves the image's own", "[user_data]") {
    CHECK(login_user("") == "debian");
    CHECK(login_user("#cloud-config\n") == "debian");
    CHECK(login_user("#cloud-config\npackages:\n  - name: not-a-user\n") == "debian");
    CHECK(login_user("#!/bin/sh\necho hello\n") == "debian");
    CHECK(login_user("#cloud-config\n{\"users\": 7}") == "debian");
}
