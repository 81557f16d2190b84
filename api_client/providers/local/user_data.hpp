// What the provider must know of a machine's user data, which is otherwise cloud-init's business.
#pragma once

#include <string>

namespace tnr::local {

// The first user that the document's `users:` list (or `user:`) names; "debian", the images' own default, where it
// names none. Understands the block style and JSON (which is YAML too), not the whole of YAML: a document it does
// not understand only leaves Machine::user at the default.
std::string login_user(const std::string& user_data);

}  // namespace tnr::local
