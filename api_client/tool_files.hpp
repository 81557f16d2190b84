// Reading the files in which the clouds' own tools keep their credentials.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tnr {

// The `key<separator>value` lines of a file, in their order, whatever sections or lists they are in; quotes, indentation
// and comments removed. Enough of TOML, INI and YAML for one name and one value. A file that cannot be read has none.
std::vector<std::pair<std::string, std::string>> settings_in(const std::string& path, char separator);

std::vector<std::pair<std::string, std::string>> settings_of(const std::string& text, char separator);

// The settings of an INI file by their section. Names of settings are small letters. A setting below another one, as those of
// `[services …]` in ~/.aws/config are, is called "ec2.endpoint_url".
using Section = std::map<std::string, std::string>;
std::map<std::string, Section> sections_of(const std::string& text);

// The whole file; empty where it cannot be read or is far too large for a token. A pipe that nobody writes into for two
// seconds is empty.
std::string small_file(const std::string& path);

// Without the blanks and line breaks around it: files and variables often end in one that is no part of the token.
std::string stripped(const std::string& text);

}  // namespace tnr
