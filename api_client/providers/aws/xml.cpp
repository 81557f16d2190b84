// pugixml neither throws nor follows entities of a document's own, and needs no stack for deep ones.
#include "api_client/providers/aws/xml.hpp"

#include <stdexcept>

namespace tnr::aws {

std::optional<Xml> Xml::parse(const std::string& text) {
    Xml xml;
    xml.document_ = std::make_shared<pugi::xml_document>();
    const auto parsed = xml.document_->load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed || !xml.root()) return std::nullopt;
    return xml;
}

std::string text(pugi::xml_node node, const char* path) {
    return node.first_element_by_path(path).text().get();
}

std::string required(pugi::xml_node node, const char* path) {
    std::string found = text(node, path);
    if (found.empty()) throw std::runtime_error(std::string("there is no ") + path);
    return found;
}

std::vector<pugi::xml_node> items(pugi::xml_node node, const char* path) {
    std::vector<pugi::xml_node> found;
    for (auto item : node.first_element_by_path(path).children("item")) found.push_back(item);
    return found;
}

std::string tag(pugi::xml_node node, const std::string& name) {
    for (auto each : items(node, "tagSet"))
        if (text(each, "key") == name) return text(each, "value");
    return "";
}

}  // namespace tnr::aws
