// AWS as tests have it: moto behind a server of ours, which starts once and is as new for each test.
#pragma once

#include "mock_world.hpp"

namespace tnr::test {

class AwsMock : public MockCloud {
public:
    AwsMock() : MockCloud("aws", server(), "AWS_ENDPOINT_URL", "") {
        ask("reset", Json::object());
        keys = ask("keys");
        variables["AWS_REGION"] = "us-east-1";
    }
    ~AwsMock() {
        CHECK(explained.find(keys["tester"]["secret"].get<std::string>()) == std::string::npos);
        CHECK(explained.find(keys["role"]["token"].get<std::string>()) == std::string::npos);
    }

    // Without moto these tests say so and do nothing.
    static bool is_there() {
        if (server()->port()) return true;
        WARN("no moto: the driver of AWS was not tested");
        return false;
    }

    std::unique_ptr<Provider> as(const std::string& who) { return with(keys[who]["id"], keys[who]["secret"]); }
    std::unique_ptr<Provider> with(const std::string& id, const std::string& secret, const std::string& session = "") {
        return open({{{"access_key_id", id}, {"secret_access_key", secret}, {"session_token", session}}, "the test"});
    }
    std::unique_ptr<Provider> open(const Credentials& credentials) {
        return find_cloud("aws")->make(credentials, world);
    }

    Json keys;

private:
    static std::shared_ptr<PythonServer> server() {
        static auto one = std::make_shared<PythonServer>("aws_mock.py");
        return one;
    }
};

}  // namespace tnr::test
