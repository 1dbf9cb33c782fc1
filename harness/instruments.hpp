// What looks on while a cell runs.
#pragma once
#include <filesystem>
#include <string>

#include "core/engine/decisions.hpp"
#include "models/routing.hpp"

namespace sluice {

struct Instruments {
  bool audit = false;                          // a race makes the cell not valid
  std::filesystem::path trace{}, decisions{};  // files to write; empty: none
  std::filesystem::path routing_file{};        // likewise, of what the routers choose
  DecisionSink* listener = nullptr;  // hears the decisions where no file of them is written
  RoutingHooks routing{};

  // The same with files of the cell's own: DIR/NAME.json becomes DIR/NAME-ID.json.
  Instruments of_cell(const std::string& id) const {
    const auto own = [&](const std::filesystem::path& file) {
      if (file.empty()) return file;
      return file.parent_path() / (file.stem().string() + "-" + id + file.extension().string());
    };
    Instruments out = *this;
    for (std::filesystem::path* file : {&out.trace, &out.decisions, &out.routing_file})
      *file = own(*file);
    return out;
  }
};

}  // namespace sluice
