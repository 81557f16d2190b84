// Replies of EC2 and STS: XML, read by pugixml.
#pragma once

#include <memory>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <vector>

namespace tnr::aws {

// A whole reply; copies share it. Nodes live as long as one of them.
class Xml {
public:
    // Nothing where the text is no XML.
    static std::optional<Xml> parse(const std::string& text);
    pugi::xml_node root() const { return document_ ? document_->document_element() : pugi::xml_node(); }

private:
    std::shared_ptr<pugi::xml_document> document_;
};

// What stands below `node` at a path such as "placement/availabilityZone"; empty where there is nothing.
std::string text(pugi::xml_node node, const char* path);
// The same of what must be there; throws where it is not, for http::understood to catch.
std::string required(pugi::xml_node node, const char* path);
// The <item>s of a list.
std::vector<pugi::xml_node> items(pugi::xml_node node, const char* path);
// The value of one of its tags; empty where it has none of that name.
std::string tag(pugi::xml_node node, const std::string& name);

}  // namespace tnr::aws
