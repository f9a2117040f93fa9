// Writes docs/api.md anew: the table of request fields between the page's two marks, the rest as it is.
//   make_api_docs docs/api.md

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "server/request_fields.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_api_docs docs/api.md\n";
    return 2;
  }
  const std::string begin = "<!-- fields: made by make_api_docs -->\n", end = "<!-- end of fields -->\n";
  std::ifstream input(argv[1]);
  std::stringstream buffer;
  buffer << input.rdbuf();
  std::string page = buffer.str();
  const size_t from = page.find(begin), to = page.find(end);
  if (from == std::string::npos || to == std::string::npos) {
    std::cerr << argv[1] << " has no marks\n";
    return 1;
  }
  page.replace(from + begin.size(), to - from - begin.size(), kvasir::api_fields_markdown());
  std::ofstream(argv[1]) << page;
  return 0;
}
