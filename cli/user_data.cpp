// Written as text: it is YAML, but of a fixed shape, and all that goes in is checked names and key lines.
#include "cli/user_data.hpp"

#include <sstream>

namespace tnr::cli {

std::string user_data(const std::string& host_name, const std::string& host_secret, const std::string& host_key,
                      const std::string& authorised_key) {
    std::ostringstream text;
    text << "#cloud-config\n"
         << "hostname: " << host_name << "\n"
         << "ssh_deletekeys: true\n"  // an image may bring keys that others know
         << "ssh_keys:\n"
         << "  ed25519_private: |\n";
    std::istringstream lines{host_secret};
    for (std::string line; std::getline(lines, line);) text << "    " << line << "\n";
    text
        << "  ed25519_public: " << host_key
        << "\n"
        // A snapshot brings the key of the machine that it was made of. Only once: later boots do not plant ours again.
        << "bootcmd:\n"
        << "  - [cloud-init-per, instance, tnr-keys, sh, -c, \"f=/home/" << login_user
        << "/.ssh/authorized_keys; [ ! -f $f ] || sed -i '/^[^ ]* [^ ]* " << login_key_comment << "$/d' $f\"]\n"
        << "ssh_pwauth: false\n"
        << "disable_root: true\n"
        << "users:\n"
        << "  - name: " << login_user << "\n"
        << "    gecos: tnr\n"
        << "    shell: /bin/bash\n"
        << "    lock_passwd: true\n"
        << "    sudo: \"ALL=(ALL) NOPASSWD:ALL\"\n"
        << "    ssh_authorized_keys:\n"
        << "      - " << authorised_key << "\n";
    return text.str();
}

}  // namespace tnr::cli
