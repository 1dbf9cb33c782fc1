// Recorded routing: which experts each pass of a run went through, written while it runs and read back
// to be replayed. The text is described in core/sdk/sluice/routing_file.hpp.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/atomic_file.hpp"
#include "models/routing.hpp"
#include "sluice/routing_file.hpp"

namespace sluice {

struct RoutedLayer {
  std::int32_t layer = 0;
  std::vector<std::int32_t> ids;  // [tokens, RoutingShape::per_token]
};
struct RoutedPass {
  Phase phase = Phase::decode;
  std::vector<RoutedLayer> layers;  // those of experts, ascending
};
struct Routing {
  RoutingShape shape;
  std::vector<RoutedPass> passes;
};

// Such a text, or a `route_trace v1` of others (models/route_trace.hpp); `file` names it in errors.
// Throws InputError with the line and the reason.
Routing parse_routing(std::string_view text, const std::string& file);
Routing read_routing(const std::filesystem::path& path);

// Takes down what a decoder's routers choose.
class RoutingFile final : public IRoutingSink {
 public:
  // Throws InputError when the file cannot be made.
  RoutingFile(std::filesystem::path path, const RoutingShape& shape);

  void routed(const RoutedRows& rows) override;
  // What is routed afterwards is left out. Without this there will be no file. Throws Error when the
  // disk refuses.
  void finish();

 private:
  AtomicFile file_;
  std::uint64_t pass_ = 0;
  std::int32_t last_layer_ = -1;
  bool finished_ = false;
};

}  // namespace sluice
