// Renders chat templates for the parity tests: reads lines {"template": FILE, "variables": {...}},
// or {"source": TEXT, "variables": {...}},
// writes lines {"text": ..., "generated": [[begin, end], ...]}, bytes, or {"error": ...}.
#include <iostream>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "jinja/template.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json rendered(const Json& request) {
  static std::map<std::string, jinja::Template> templates;
  try {
    if (request.contains("source")) {
      const jinja::Template source(request.at("source").get<std::string>(), "here");
      return {{"text", source.render(request.at("variables")).text}};
    }
    const auto name = request.at("template").get<std::string>();
    if (templates.count(name) == 0) {
      templates.emplace(name, jinja::Template(read_file(name, ErrorKind::kData), name));
    }
    const jinja::Rendering found = templates.at(name).render(request.at("variables"));
    Json spans = Json::array();
    for (const jinja::TextSpan& span : found.generated) {
      spans.push_back({span.begin, span.end});
    }
    return {{"text", found.text}, {"generated", spans}};
  } catch (const Error& error) {
    return {{"error", error.message()}};
  }
}

}  // namespace
}  // namespace lockstep

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << lockstep::rendered(nlohmann::ordered_json::parse(line)).dump() << "\n";
  }
  return 0;
}
