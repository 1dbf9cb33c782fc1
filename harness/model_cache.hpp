// Models opened and weights packed in this process, shared by the cells of a sweep.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.hpp"
#include "core/weights/weight_store.hpp"
#include "harness/experiment.hpp"
#include "models/chat_format.hpp"
#include "models/generation_config.hpp"
#include "models/model_source.hpp"
#include "models/tokenizer/tokenizer.hpp"

namespace sluice {

// What is known of a model before its weights are read.
struct Model {
  std::string name;  // for messages: the directory, or the shape
  ModelSource source;
  GenerationConfig generation;  // of a synthetic model: empty
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatFormat> chat;
  std::string no_tokenizer, no_chat;               // why there is none
  std::optional<std::filesystem::path> directory;  // none: synthetic

  // Throws InputError where the model has no tokenizer.
  const Tokenizer& text() const;
  // Throws InputError where the model has no chat format, or one that is not supported.
  const ChatFormat& chat_format() const;
};

class ModelCache {
 public:
  // A device of this kind (of this machine, when simulated) without limits, opened once: it holds the
  // pinned memory, whatever a cell's own device allows. Throws InputError where there is none.
  IDevice& host(const DeviceSpec& spec);
  // Throws InputError for a model that is missing or broken.
  const Model& open(const ModelLocation& location);
  // The weights of an experiment's model in `encodings` (WeightStore::Options), pinned as it and the
  // system allow. The last ones asked for are kept; others take their place, so that host memory
  // holds two only while somebody holds on to the first. Shows progress on standard error.
  std::shared_ptr<const WeightStore> pack(const Experiment& experiment, DType dtype,
                                          const std::vector<EncodingSet>& encodings);

 private:
  std::map<std::string, std::unique_ptr<IDevice>> hosts_;  // by host_key; outlive what is packed
  std::map<std::string, std::unique_ptr<Model>> models_;
  std::string store_key_;
  std::vector<EncodingSet> store_encodings_;
  std::shared_ptr<const WeightStore> store_;
};

// A key that is the same for the same place.
std::string name_of(const ModelLocation& location);

}  // namespace sluice
