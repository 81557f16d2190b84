// The driver of Azure against a stateful mock, all of whose requests and replies are checked against the models of Azure's own clients.
#include "azure_world.hpp"
#include "life.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

TEST_CASE("azure: offers are x86 without GPUs that start our image, with retail prices, the default first",
          "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    CHECK(*provider->whoami() == std::string("subscription Pay-As-You-Go (") + azure_subscription + ")");
    auto offers = provider->offers();
    REQUIRE(offers);
    CHECK(offers->size() == 5);
    const Offer& first = offers->front();
    CHECK(first.name == "Standard_B2s");
    CHECK(first.region == "eastus");
    CHECK(first.cpus == 2);
    CHECK(first.memory_mib == 4096);
    CHECK(first.disk_gib == 64);
    CHECK(first.price.currency == "USD");
    CHECK(*first.price.machine == 0.0416);  // not Windows, not Spot
    CHECK(*first.price.address == 0.005);
    CHECK(std::abs(*first.price.stopped() - (4.8 / 730 + 0.005)) < 1e-9);
    CHECK(first.price.date == cloud.now);
    CHECK(offers->back().name == "Standard_E2_v9");
    CHECK_FALSE(offers->back().price.running());

    SECTION("each location is asked for once a day") {
        auto there = cloud.provider()->offers_in("westeurope");
        CHECK(there->size() == 3);
        CHECK(*there->front().price.address == 0.006);
        REQUIRE(cloud.provider()->offers_in("westeurope"));
        CHECK(cloud.count("GET", std::string("/subscriptions/") + azure_subscription +
                                     "/providers/Microsoft.Compute/skus") == 2);
    }
    SECTION("az's default location is ours") {
        std::filesystem::create_directories(cloud.folder / ".azure");
        test::write_text(cloud.folder / ".azure/config", "[defaults]\nlocation = westeurope\n");
        CHECK(provider->offers()->front().region == "westeurope");
        cloud.variables["AZURE_DEFAULTS_LOCATION"] = "eastus";
        CHECK(provider->offers()->front().region == "eastus");
    }
}

TEST_CASE("azure: without the retail prices prices are unknown, and everything else works", "[clouds][azure]") {
    AzureWorld cloud;
    cloud.ask("knobs", {{"prices_down", true}});
    auto offers = cloud.provider()->offers();
    REQUIRE(offers);
    CHECK(offers->front().name == "Standard_B2s");
    CHECK_FALSE(offers->front().price.running());
    CHECK(offers->front().price.source.find("unknown: ") == 0);
}

TEST_CASE("azure: a machine lives its whole life and leaves nothing", "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    auto rules = [&] {
        return cloud.ask("things")["tnr-demo/networksecuritygroups/firewall"]["properties"]["securityRules"];
    };
    live(
        cloud, *provider,
        {.order = cloud.order(),
         .larger = "Standard_D4s_v5",
         .left_while_it_runs = {"address", "card", "demo", "firewall", "network", "tnr-demo"},
         .left_of_copy = {"before", "tnr.snapshot.before"},
         .running =
             [&](const Machine& machine) {
                 CHECK(machine.id == "tnr-demo");
                 CHECK(machine.region == "eastus");
                 CHECK(machine.offer == "Standard_B2s");
                 CHECK(machine.address == "192.0.2.40");
                 CHECK(std::abs(*machine.price.running() - (0.0416 + 4.8 / 730 + 0.005)) < 1e-9);
                 CHECK(provider->machines()->front().address == machine.address);
                 CHECK(provider->machines()->front().state == MachineState::running);
                 CHECK(cloud.explained.find("I2Nsb3Vk") == std::string::npos);  // nor in base64
                 const json sent = cloud.sent("PUT", std::string("/subscriptions/") + azure_subscription +
                                                         "/resourceGroups/tnr-demo/providers/Microsoft.Compute/"
                                                         "virtualMachines/demo");
                 CHECK(sent["properties"]["osProfile"]["customData"] == "I2Nsb3VkLWNvbmZpZwpzc2hfa2V5czogUFJJVkFURQo=");
                 REQUIRE(rules().size() == 1);
                 CHECK(rules()[0]["properties"]["destinationPortRanges"] == json({"22"}));
             },
         .resized =
             [](const Machine& machine) {
                 CHECK(std::abs(*machine.price.stopped() - (4.8 / 730 + 0.005)) < 1e-9);
                 CHECK(*machine.price.machine == 0.192);
             },
         .open =
             [&](const Machine&) {
                 REQUIRE(rules().size() == 1);
                 CHECK(rules()[0]["properties"]["destinationPortRanges"] == json({"22", "8888"}));
             },
         .copied =
             [&](const Snapshot& copy) {
                 CHECK_FALSE(copy.per_month);
                 CHECK(provider->snapshot("tnr-demo", "before").error().kind ==
                       Error::Kind::usage);  // the name is taken
                 CHECK(provider->snapshot("tnr-demo", "Be/fore").error().kind == Error::Kind::usage);
             }});
    CHECK_FALSE(cloud.ask("things").contains("tnr-again/images/restored"));
    auto costs = provider->costs();
    CHECK(*costs->this_month == 12.5);
    CHECK(costs->currency == "EUR");
    cloud.ask("knobs", {{"cost_column", "SomethingElse"}});
    CHECK_FALSE(provider->costs()->this_month);  // unknown, not zero
}

TEST_CASE("azure: a machine that is switched off from inside is billed until it is stopped here", "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(cloud.order());
    REQUIRE(made);
    wait_until(*provider, made->id, MachineState::running);
    cloud.ask("knobs", {{"switched_off", {"demo"}}});
    auto off = provider->machine(made->id);
    CHECK(off->state == MachineState::stopped);
    CHECK(*off->price.stopped() == *off->price.running());
    CHECK_FALSE(provider->power_off_ends_billing());
    REQUIRE(provider->stop(made->id));
    CHECK(*provider->machine(made->id)->price.stopped() < 0.02);
}

TEST_CASE("azure: what it refuses is told so that one can act on it, and leaves nothing behind", "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    auto error_of = [&](const Order& order) {
        auto made = provider->create(order);
        REQUIRE_FALSE(made);
        return made.error();
    };
    SECTION("a wrong secret") {
        auto refused = cloud.provider("hidden-wrong-secret")->whoami();
        CHECK(refused.error().kind == Error::Kind::auth);
        CHECK(refused.error().what ==
              "Azure does not take these credentials: AADSTS7000215: Invalid client secret provided.");
        CHECK(refused.error().hint.find("tnr login azure") != std::string::npos);
    }
    SECTION("a secret that has expired") {
        cloud.ask("knobs", {{"secret_expired", true}});
        CHECK(provider->whoami().error().hint.find("the client secret has expired") == 0);
    }
    SECTION("no such tenant, no such subscription, none or several to choose from") {
        auto none =
            cloud.with({{"tenant_id", "mars"}, {"client_id", "app-1"}, {"client_secret", "hidden-client-secret"}});
        CHECK(none->whoami().error().kind == Error::Kind::auth);
        auto with = [&](const json& ids) {
            cloud.ask("knobs", {{"subscriptions", ids}});
            return cloud.with(
                {{"tenant_id", "tenant-1"}, {"client_id", "app-1"}, {"client_secret", "hidden-client-secret"}});
        };
        CHECK(with({azure_subscription})->whoami());
        CHECK(with(json::array())->whoami().error().kind == Error::Kind::auth);
        CHECK(with({"a", "b"})->whoami().error().hint == "set AZURE_SUBSCRIPTION_ID to one of a, b");
        cloud.variables["AZURE_SUBSCRIPTION_ID"] = "no-such";
        CHECK(with({"a", "b"})->whoami().error().kind == Error::Kind::not_found);
    }
    SECTION("sold out, found out by ordering, at once or by the operation") {
        for (const char* how : {"sold_out", "no_room"}) {
            cloud.ask("knobs", {{how, {"Standard_B2s@eastus"}}});
            auto error = error_of(cloud.order());
            CHECK(error.what.find("'Standard_B2s' is sold out in eastus (Azure: ") == 0);
            CHECK(error.hint == "nearest: Standard_D2s_v5 in eastus (2 CPUs, 8 GiB)");
            CHECK(cloud.ask("left") == json::array());
            cloud.ask("knobs", {{how, json::array()}});
        }
    }
    SECTION("sold out when a stopped machine starts") {
        auto made = provider->create(cloud.order());
        REQUIRE((made && provider->stop(made->id)));
        cloud.ask("knobs", {{"no_room", {"Standard_B2s@eastus"}}});
        CHECK(provider->start(made->id).error().what.find("'Standard_B2s' is sold out in eastus") == 0);
        REQUIRE(provider->destroy(made->id));
    }
    SECTION("sold out, as the list says: another size is taken unless this one was asked for") {
        cloud.ask("knobs", {{"listed_sold_out", {"Standard_B2s@eastus"}}});
        Order order = cloud.order();
        order.offer = "Standard_B2s";
        CHECK(error_of(order).hint == "nearest: Standard_D2s_v5 in eastus (2 CPUs, 8 GiB)");
        order.offer = "";
        CHECK(provider->create(order)->offer == "Standard_D2s_v5");
        REQUIRE(provider->destroy("tnr-demo"));
    }
    SECTION("no such size, no such region, a region without it, no such image") {
        Order order = cloud.order();
        order.offer = "Standard_Z9";
        CHECK(error_of(order).hint ==
              "sizes: Standard_B1ms, Standard_B2s, Standard_D2s_v5, Standard_D4s_v5, Standard_E2_v9");
        order.region = "mars";
        CHECK(error_of(order).hint == "regions: eastus, westeurope");
        CHECK(provider->check(order).error().kind == Error::Kind::usage);
        order.region = "westeurope";
        order.offer = "Standard_D4s_v5";
        CHECK(error_of(order).hint == "sizes: Standard_B1ms, Standard_B2s, Standard_D2s_v5");
        for (const std::string image : {"no-such-snapshot", "a:b:c", "a:b:c:d:e"}) {
            order = cloud.order();
            order.image = image;
            CHECK(error_of(order).kind == Error::Kind::usage);
        }
    }
    SECTION("quota") {
        cloud.ask("knobs", {{"quota", true}});
        auto error = error_of(cloud.order());
        CHECK(error.kind == Error::Kind::remote);
        CHECK(error.what.find("Total Regional Cores quota") != std::string::npos);
        CHECK(error.hint.find("Quotas") != std::string::npos);
    }
    SECTION("a name that is taken") {
        auto made = provider->create(cloud.order());
        REQUIRE(made);
        CHECK(error_of(cloud.order()).kind == Error::Kind::usage);
        CHECK(cloud.ask("left").size() == 6);
        REQUIRE(provider->destroy(made->id));
    }
    SECTION("malformed JSON") {
        cloud.fail_next({{"path", "/virtualNetworks/"}, {"kind", "malformed"}});
        CHECK(error_of(cloud.order()).what.find("is no JSON") != std::string::npos);
    }
    SECTION("JSON of another shape") {
        for (const json& body :
             {json{{"value", 7}}, json{{"value", {1, 2}}}, json::array(), json{{"value", {{{"name", 7}}}}}}) {
            cloud.fail_next({{"path", "/resourceGroups$"}, {"status", 200}, {"body", body}});
            CHECK(provider->machines().error().what.find("makes no sense") != std::string::npos);
        }
    }
    SECTION("a next page at another host gets no token") {
        cloud.fail_next({{"path", "/resourceGroups$"},
                         {"status", 200},
                         {"body", {{"value", json::array()}, {"nextLink", "https://evil.example/subscriptions"}}}});
        CHECK(provider->machines().error().what.find("to another host") != std::string::npos);
        cloud.fail_next({{"path", "/resourceGroups$"},
                         {"status", 200},
                         {"body", {{"value", json::array()}, {"nextLink", cloud.url + "0/subscriptions"}}}});
        CHECK(provider->machines().error().what.find("to another host") != std::string::npos);
    }
    SECTION("a fault of the server that stays") {
        cloud.fail_next({{"path", "/virtualMachines/demo$"}, {"status", 500}, {"times", 99}, {"body", json::object()}});
        CHECK(error_of(cloud.order()).hint.find("cloud's side") != std::string::npos);
        cloud.ask("faults", json::array());
    }
    SECTION("a reply that never ends") {
        cloud.fail_next({{"path", "/resourceGroups/tnr-demo$"}, {"kind", "endless"}});
        CHECK(error_of(cloud.order()).what.find("larger than 32 MiB") != std::string::npos);
    }
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("azure: passing trouble is got over", "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    SECTION("too many requests, at the order itself") {
        cloud.fail_next({{"method", "PUT"},
                         {"path", "/virtualMachines/demo$"},
                         {"status", 429},
                         {"headers", {{"Retry-After", "2"}}}});
    }
    SECTION("faults while looking, a reply cut in half") {
        cloud.fail_next({{"path", "/skus"}, {"status", 502}});
        cloud.fail_next({{"path", "/retail/prices"}, {"kind", "reset"}});
        cloud.fail_next({{"path", "/operations/"}, {"kind", "half"}});
        cloud.fail_next({{"path", "/oauth2/"}, {"status", 503}});
    }
    SECTION("an order whose reply got lost is repeated, for it names what it makes") {
        cloud.fail_next({{"method", "PUT"}, {"path", "/virtualMachines/demo$"}, {"kind", "applied_reset"}});
    }
    SECTION("a token that expires in between is replaced") {
        REQUIRE(provider->whoami());
        cloud.ask("knobs", {{"expire", true}});
        CHECK(provider->whoami());
        CHECK(cloud.count("POST", "/tenant-1/oauth2/v2.0/token") == 2);
    }
    REQUIRE(provider->create(cloud.order()));
    CHECK(cloud.ask("left").size() == 6);
}

TEST_CASE("azure: what a start that was killed has left is shown, and goes by its tag", "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    cloud.ask("half");
    cloud.ask("foreign");
    auto machines = provider->machines();
    REQUIRE(machines->size() == 1);
    CHECK(machines->front().name == "half");
    CHECK(machines->front().state == MachineState::stopped);
    CHECK(provider->start("tnr-half").error().what.find("never finished") != std::string::npos);
    REQUIRE(provider->remove_leftovers("foreign"));  // is not ours
    CHECK(machines->front().unfinished);
    SECTION("and is made whole by the order that had begun it") {
        Order order = AzureWorld::order("half");
        CHECK(provider->create(order).error().kind == Error::Kind::usage);  // as another computer's would be
        order.goes_on = true;
        order.region = "westeurope";  // it stays where it was begun
        auto made = provider->create(order);
        REQUIRE(made);
        CHECK(made->region == "eastus");
        CHECK_FALSE(made->unfinished);
        wait_until(*provider, made->id, MachineState::running);
        CHECK(provider->create(order).error().kind == Error::Kind::usage);  // it is whole now
        REQUIRE(provider->destroy(made->id));
    }
    SECTION("by its id") {
        REQUIRE(provider->destroy("tnr-half"));
    }
    SECTION("by its name") {
        CHECK(remove_what_is_left(*provider, "half") == std::vector<std::string>{"resource group tnr-half"});
    }
    REQUIRE(provider->remove_leftovers("half"));
    CHECK(provider->destroy("tnr-foreign").error().kind == Error::Kind::usage);
    CHECK(cloud.ask("left") == json({"tnr-foreign"}));
}

TEST_CASE("azure: a removal that was interrupted goes on, and is waited for", "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(AzureWorld::order());
    REQUIRE(made);
    bool patient = false;
    cloud.world.http.pause = [&](int milliseconds) { return patient || milliseconds == 0; };
    CHECK(cloud.provider()->destroy(made->id).error().what == "interrupted");
    patient = true;
    REQUIRE(provider->machines()->size() == 1);
    CHECK(provider->machines()->front().state == MachineState::gone);
    SECTION("and the machine is gone meanwhile") {
        auto now = provider->machine(made->id);
        REQUIRE(now);
        CHECK(now->state == MachineState::gone);
        REQUIRE(cloud.provider()->destroy(made->id));
    }
    SECTION("by the next delete") {
        REQUIRE(cloud.provider()->destroy(made->id));
    }
    SECTION("by a start of the same name") {
        auto again = cloud.provider()->create(AzureWorld::order());
        REQUIRE(again);
        REQUIRE(cloud.provider()->destroy(again->id));
    }
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("azure: a removal that begins while the next machine is made is waited for", "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    cloud.ask("knobs", {{"removal_comes_late", true}});
    auto made = provider->create(AzureWorld::order());
    REQUIRE(made);
    REQUIRE(provider->destroy(made->id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("azure: a machine deleted in the web console is gone; lists have pages", "[clouds][azure]") {
    AzureWorld cloud;
    auto provider = cloud.provider();
    for (const char* name : {"one", "two", "three", "four", "five"}) REQUIRE(provider->create(cloud.order(name)));
    auto machines = provider->machines();
    CHECK(machines->size() == 5);
    for (const auto& machine : *machines) CHECK(machine.address == "192.0.2.40");
    cloud.ask("knobs", {{"console_delete", {"tnr-one"}}});
    CHECK(provider->machine("tnr-one").error().kind == Error::Kind::not_found);
    CHECK(provider->machines()->size() == 4);
    REQUIRE(provider->destroy("tnr-one"));
}

TEST_CASE("azure: credentials come from where Azure's own tools have them", "[clouds][azure]") {
    AzureWorld cloud;
    auto azure = find_cloud("azure");
    CHECK_FALSE(azure->standard(cloud.world));
    CHECK_FALSE(azure->ambient(cloud.world));
    SECTION("the variables, all three") {
        cloud.variables["AZURE_TENANT_ID"] = "tenant-1";
        cloud.variables["AZURE_CLIENT_ID"] = "app-1";
        CHECK_FALSE(azure->standard(cloud.world));
        cloud.variables["AZURE_CLIENT_SECRET"] = "hidden-client-secret";
        CHECK(azure->make(*azure->standard(cloud.world), cloud.world)->whoami());  // of the only subscription there is
    }
    SECTION("the identity of the machine that tnr runs on") {
        cloud.variables["IDENTITY_ENDPOINT"] = cloud.url + "/identity";
        cloud.variables["IDENTITY_HEADER"] = "hidden-identity-header";
        CHECK(azure->make(*azure->ambient(cloud.world), cloud.world)->whoami());
        cloud.variables["IDENTITY_HEADER"] = "hidden-other-header";
        CHECK(azure->make(*azure->ambient(cloud.world), cloud.world)->whoami().error().kind == Error::Kind::auth);
    }
    SECTION("of several that are signed in to az, the one whom the subscription belongs to") {
        auto token = [](const char* account, const char* secret) {
            return json{{"secret", secret},
                        {"home_account_id", account},
                        {"target", "https://management.core.windows.net//.default"},
                        {"realm", "tenant-1"},
                        {"expires_on", "1767326645"}};
        };
        const json cache = {
            {"Account",
             {{"1", {{"username", "other@example.com"}, {"home_account_id", "a.1"}}},
              {"2", {{"username", "me@example.com"}, {"home_account_id", "b.1"}}}}},
            {"AccessToken", {{"1", token("a.1", "of-another-user")}, {"2", token("b.1", MockCloud::token)}}},
            {"RefreshToken", {{"1", token("a.1", "of-another-user")}, {"2", token("b.1", "hidden-refresh-token")}}}};
        json profile = {{"subscriptions",
                         {{{"id", "other"}, {"isDefault", true}, {"tenantId", "tenant-2"}},
                          {{"id", azure_subscription},
                           {"isDefault", false},
                           {"tenantId", "tenant-1"},
                           {"user", {{"name", "me@example.com"}, {"type", "user"}}}}}}};
        cloud.variables["AZURE_SUBSCRIPTION_ID"] = azure_subscription;
        std::filesystem::create_directories(cloud.folder / ".azure");
        auto write = [&] { test::write_text(cloud.folder / ".azure/azureProfile.json", profile.dump()); };
        auto whoami = [&] { return azure->make(*azure->standard(cloud.world), cloud.world)->whoami(); };
        test::write_text(cloud.folder / ".azure/msal_token_cache.json", cache.dump());
        write();
        CHECK(whoami());
        CHECK(cloud.count("POST", "/tenant-1/oauth2/v2.0/token") == 0);
        cloud.now = "2026-01-02T05:00:00Z";  // the token's time is over
        CHECK(whoami());
        // A service principal, whose secret az keeps beside the cache.
        profile["subscriptions"][1]["user"] = {{"name", "app-1"}, {"type", "servicePrincipal"}};
        write();
        CHECK(whoami().error().what.find("not with a secret") != std::string::npos);
        test::write_text(
            cloud.folder / ".azure/service_principal_entries.json",
            json::array({{{"client_id", "app-2"}, {"tenant", "tenant-1"}, {"client_secret", "hidden-no"}},
                         {{"client_id", "app-1"}, {"tenant", "tenant-1"}, {"client_secret", "hidden-client-secret"}}})
                .dump());
        CHECK(whoami());
        CHECK(cloud.explained.find("hidden-client-secret") == std::string::npos);
    }
    SECTION("what az has stored: its token while it is good, else its refresh token") {
        json cache = {{"AccessToken",
                       {{"other",
                         {{"secret", "of-another-tenant"},
                          {"target", "https://management.core.windows.net//.default"},
                          {"realm", "tenant-2"},
                          {"expires_on", "1767326645"}}},
                        {"graph",
                         {{"secret", "for-something-else"},
                          {"target", "https://graph.microsoft.com//.default"},
                          {"realm", "tenant-1"},
                          {"expires_on", "1767326645"}}},
                        {"ours",
                         {{"secret", MockCloud::token},
                          {"target", "https://management.core.windows.net//.default"},
                          {"realm", "tenant-1"},
                          {"expires_on", "1767326645"}}}}},
                      {"RefreshToken", {{"one", {{"secret", "hidden-refresh-token"}}}}}};
        const json profile = {{"subscriptions",
                               {{{"id", "other"}, {"isDefault", false}, {"tenantId", "tenant-2"}},
                                {{"id", azure_subscription}, {"isDefault", true}, {"tenantId", "tenant-1"}}}}};
        std::filesystem::create_directories(cloud.folder / ".azure");
        test::write_text(cloud.folder / ".azure/msal_token_cache.json", cache.dump());
        CHECK_FALSE(azure->standard(cloud.world));
        test::write_text(cloud.folder / ".azure/azureProfile.json", "\xef\xbb\xbf" + profile.dump());
        auto with = [&] { return azure->make(*azure->standard(cloud.world), cloud.world); };
        CHECK(with()->whoami());
        CHECK(cloud.count("POST", "/tenant-1/oauth2/v2.0/token") == 0);
        auto provider = with();
        cloud.ask("knobs", {{"expire", true}});  // before its time
        CHECK(provider->whoami());
        CHECK(cloud.count("POST", "/tenant-1/oauth2/v2.0/token") == 1);
        cloud.now = "2026-01-02T04:00:00Z";  // five minutes before its end
        CHECK(with()->whoami());
        CHECK(cloud.count("POST", "/tenant-1/oauth2/v2.0/token") == 2);
        cache["RefreshToken"]["one"]["secret"] = "hidden-other-token";
        test::write_text(cloud.folder / ".azure/msal_token_cache.json", cache.dump());
        CHECK(with()->whoami().error().kind == Error::Kind::auth);
        test::write_text(cloud.folder / ".azure/msal_token_cache.json",
                         R"({"AccessToken": {"a": 7}, "RefreshToken": []})");
        CHECK(with()->whoami().error().hint == "run `az login`");
    }
}
