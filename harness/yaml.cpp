#include "harness/yaml.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <unordered_map>

#include "core/error.hpp"
#include "core/files.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMaxBytes = 4u << 20;
constexpr std::size_t kMaxDepth = 16;

// Builds the tree out of the parser's events, so that anchors are seen before anything is copied.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  YamlNode take() { return std::move(root_); }
  int documents() const { return documents_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail(mark, "a second document; one file describes one thing");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    leaf(mark, YamlNode::Kind::null, {}, false);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "an alias (*name); write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    leaf(mark, YamlNode::Kind::scalar, value, tag == "!");
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Level {
    YamlNode* node;
    bool key_next;                                 // of a map: the next event is a key
    std::unordered_map<std::string, int> lines{};  // where its keys stand
  };

  Origin place_of(const YAML::Mark& mark) const {
    if (!mark.is_null()) return {file_, mark.line + 1, mark.column + 1};
    if (!open_.empty() && !open_.back().node->keys.empty())
      return open_.back().node->keys.back().place;
    return {file_, 1, 1};
  }
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw InputError("{}: {}", to_string(place_of(mark)), what);
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor) fail(mark, "an anchor (&name); write the value out where it is used");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      fail(mark, fmt::format("the tag {}; types are known here, leave it out", tag));
  }

  void leaf(const YAML::Mark& mark, YamlNode::Kind kind, const std::string& text, bool quoted) {
    if (!open_.empty() && open_.back().key_next) return take_key(mark, kind, text);
    YamlNode& node = next(mark);
    // The parser sees that a value is missing only further down; it is missing behind its key.
    if (kind == YamlNode::Kind::null && !open_.empty() && !open_.back().node->keys.empty())
      node.place = open_.back().node->keys.back().place;
    node.kind = kind;
    node.text = text;
    node.quoted = quoted;
  }

  void take_key(const YAML::Mark& mark, YamlNode::Kind kind, const std::string& name) {
    if (kind != YamlNode::Kind::scalar) fail(mark, "an empty key; a key is a word");
    if (name == "<<") fail(mark, "a merge key (<<); write the keys out");
    Level& level = open_.back();
    const Origin place = place_of(mark);
    const auto [known, is_new] = level.lines.emplace(name, place.line);
    if (!is_new)
      fail(mark,
           fmt::format("the key '{}' stands twice; the first is in line {}", name, known->second));
    level.node->keys.push_back({name, place});
    level.key_next = false;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (!open_.empty() && open_.back().key_next)
      fail(mark, "a list or a map as a key; a key is a word");
    if (open_.size() >= kMaxDepth)
      fail(mark, fmt::format("nested deeper than {} levels", kMaxDepth));
    YamlNode& node = next(mark);
    node.kind = kind;
    open_.push_back({&node, kind == YamlNode::Kind::map});
  }

  // Where the value of this event goes. Stable while it is open: only the innermost open node's
  // items grow.
  YamlNode& next(const YAML::Mark& mark) {
    const Origin place = place_of(mark);
    YamlNode* node = &root_;
    if (!open_.empty()) {
      Level& level = open_.back();
      node = &level.node->items.emplace_back();
      level.key_next = level.node->kind == YamlNode::Kind::map;
    }
    node->place = place;
    return *node;
  }

  std::string file_;
  YamlNode root_;
  std::vector<Level> open_;
  int documents_ = 0;
};

}  // namespace

std::string to_string(const Origin& place) {
  if (place.line == 0) return place.file;
  return fmt::format("{}:{}:{}", place.file, place.line, place.column);
}

const YamlNode* YamlNode::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (keys[i].name == key) return &items[i];
  return nullptr;
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return "nothing";
    case YamlNode::Kind::list: return "a list";
    case YamlNode::Kind::map: return "a map";
    case YamlNode::Kind::scalar: break;
  }
  std::string shown = node.text.substr(0, 60);
  if (shown.size() < node.text.size()) shown += "...";
  if (node.quoted) return fmt::format("the text '{}'", shown);
  if (read_bool(node.text)) return shown;
  if (looks_like_number(node.text)) return fmt::format("the number {}", shown);
  return fmt::format("the text '{}'", shown);
}

YamlNode parse_yaml(const std::string& text, const std::string& file) {
  if (text.size() > kMaxBytes)
    throw InputError("{}: {} bytes; at most {} are read", file, text.size(), kMaxBytes);
  TreeBuilder builder(file);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const YAML::Mark& mark = error.mark;
    throw InputError("{}: not YAML: {}",
                     to_string(mark.is_null() ? Origin{file, 1, 1}
                                              : Origin{file, mark.line + 1, mark.column + 1}),
                     error.msg);
  }
  YamlNode root = builder.take();
  if (root.place.file.empty()) root.place = {file, 1, 1};
  return root;
}

YamlNode load_yaml(const std::string& file) { return parse_yaml(read_file(file, kMaxBytes), file); }

}  // namespace sluice
