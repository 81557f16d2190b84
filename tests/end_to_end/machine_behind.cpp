// The machine behind a mock cloud's: a local one, which boots with the user data that was sent to the cloud.
//
//   machine_behind image                     builds the image, if it is not there; prints nothing
//   machine_behind create NAME <USER_DATA    prints the port of 127.0.0.1 that leads to its SSH server
//   machine_behind destroy NAME
#include <iostream>
#include <iterator>
#include <string>

#include "api_client/base/paths.hpp"
#include "api_client/providers/local/image.hpp"
#include "api_client/providers/local/local.hpp"

int main(int argc, char** argv) {
    using namespace tnr;
    const std::string verb = argc > 1 ? argv[1] : "", name = argc > 2 ? argv[2] : "";
    auto told = [](const Error& error) {
        std::cerr << "machine_behind: " << error.what << "\n";
        return 1;
    };
    auto step = [](const std::string& what) { std::cerr << what << "\n"; };
    if (verb == "image") {
        auto image = local::default_image(cache_dir(), step);
        return image ? 0 : told(image.error());
    }
    local::LocalProvider provider{state_dir() / "behind", cache_dir()};
    if (verb == "destroy") {
        auto gone = provider.destroy(name);
        return gone ? 0 : told(gone.error());
    }
    if (verb != "create") return 2;
    const std::string user_data{std::istreambuf_iterator<char>(std::cin), {}};
    auto made = provider.create({.name = name, .user_data = user_data, .user = "tnr", .on_step = step});
    if (!made) return told(made.error());
    std::cout << made->ssh_port << "\n";
    return 0;
}
