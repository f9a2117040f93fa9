#include "server/served_model.h"

#include <algorithm>

namespace kvasir {

bool ServedModel::answers_to(std::string_view model) const {
  return model == name || std::find(aliases.begin(), aliases.end(), model) != aliases.end();
}

}  // namespace kvasir
