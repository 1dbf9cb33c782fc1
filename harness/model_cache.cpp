#include "harness/model_cache.hpp"

#include "core/error.hpp"
#include "core/files.hpp"
#include "harness/paths.hpp"
#include "harness/progress.hpp"
#include "harness/value.hpp"
#include "models/model_files.hpp"

namespace sluice {

namespace fs = std::filesystem;

namespace {

std::string host_key(const DeviceSpec& spec) {
  return fmt::format("{} {}", name_of(spec.kind), spec.machine ? spec.machine->name : "");
}

}  // namespace

std::string name_of(const ModelLocation& location) {
  if (const auto* checkpoint = std::get_if<CheckpointLocation>(&location))
    return checkpoint->directory.string();
  const auto& synthetic = std::get<SyntheticLocation>(location);
  return fmt::format("synthetic {} seed {}", synthetic.name, synthetic.seed);
}

const Tokenizer& Model::text() const {
  if (!tokenizer) throw InputError("{}: {}, so it takes token ids only", name, no_tokenizer);
  return *tokenizer;
}

const ChatFormat& Model::chat_format() const {
  if (!chat) throw InputError("{}: {}", name, no_chat);
  return *chat;
}

IDevice& ModelCache::host(const DeviceSpec& spec) {
  std::unique_ptr<IDevice>& device = hosts_[host_key(spec)];
  if (!device) device = make_device({.kind = spec.kind, .machine = spec.machine});
  return *device;
}

const Model& ModelCache::open(const ModelLocation& location) {
  std::unique_ptr<Model>& model = models_[name_of(location)];
  if (model) return *model;
  auto opened = std::make_unique<Model>();
  opened->name = name_of(location);
  opened->source = open_model(location, configs_directory() / "models", say);
  if (const auto* checkpoint = std::get_if<CheckpointLocation>(&location)) {
    const fs::path& directory = checkpoint->directory;
    opened->directory = directory;
    opened->generation = load_generation_config(directory, opened->source.config.vocab);
    if (path_exists(directory / kTokenizerName))
      opened->tokenizer = Tokenizer::load(directory);
    else
      opened->no_tokenizer = fmt::format("the model has no {}", kTokenizerName);
    try {  // what is wrong with it matters only to whoever chats
      opened->chat = ChatFormat::load(directory);
    } catch (const InputError& error) {
      opened->no_chat = error.what();
    }
  } else {
    opened->no_tokenizer = "a synthetic model has no tokenizer";
    opened->no_chat = "a synthetic model has no chat format";
  }
  model = std::move(opened);
  return *model;
}

std::shared_ptr<const WeightStore> ModelCache::pack(const Experiment& experiment, DType dtype,
                                                    const std::vector<EncodingSet>& encodings) {
  const std::optional<std::uint64_t>& limit = experiment.pinned_limit;
  const std::string key =
      fmt::format("{} {} {} {}", name_of(experiment.model), name_of(dtype),
                  host_key(experiment.device), limit ? fmt::format("{}", *limit) : "");
  if (key == store_key_ && encodings == store_encodings_) return store_;
  const Model& model = open(experiment.model);
  store_key_.clear();
  store_.reset();

  std::optional<Progress> progress;
  WeightStore::Options options;
  options.dtype = dtype;
  options.pinned_limit = limit;
  options.encodings = encodings;
  options.progress = [&](const WeightStore::Progress& at) {
    if (!progress)
      progress.emplace("loading " + model.name, static_cast<double>(at.total_bytes),
                       [](double x) { return format_bytes(static_cast<std::uint64_t>(x)); });
    progress->update(static_cast<double>(at.done_bytes));
  };
  store_ = std::make_shared<const WeightStore>(host(experiment.device), model.source.plan,
                                               *model.source.tensors, options);
  store_key_ = key;
  store_encodings_ = encodings;
  return store_;
}

}  // namespace sluice
