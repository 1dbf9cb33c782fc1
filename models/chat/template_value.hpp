// A value of a running chat template: data, or what only templates have.
#pragma once
#include <nlohmann/json.hpp>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::chat {

using Json = nlohmann::ordered_json;

class Value {
 public:
  // Not defined; `name` is for messages.
  static Value undefined(std::string name) {
    Value value;
    value.name_ = std::move(name);
    return value;
  }
  static Value of(Json data) {
    Value value;
    value.data_ = std::make_shared<const Json>(std::move(data));
    return value;
  }
  // Data that lies within `whole`, which stays alive with it.
  static Value within(const Value& whole, const Json& part) {
    Value value;
    value.data_ = std::shared_ptr<const Json>(whole.data_, &part);
    return value;
  }
  // Data that lies elsewhere and outlives the value.
  static Value borrowed(const Json& data) {
    Value value;
    value.data_ = std::shared_ptr<const Json>(std::shared_ptr<const Json>{}, &data);
    return value;
  }
  // What namespace() makes: variables that a loop's body can set.
  using Variables = std::map<std::string, Value, std::less<>>;
  static Value with_variables(Variables variables) {
    Value value;
    value.variables_ = std::make_shared<Variables>(std::move(variables));
    return value;
  }

  bool is_undefined() const { return !data_ && !variables_; }
  bool is_data() const { return data_ != nullptr; }
  bool is_string() const { return data_ && data_->is_string(); }
  const Json& data() const { return *data_; }
  Variables* variables() const { return variables_.get(); }
  const std::string& name() const { return name_; }

  bool is_true() const;                // as Python sees it
  std::string_view type_name() const;  // for messages

 private:
  std::shared_ptr<const Json> data_;
  std::shared_ptr<Variables> variables_;
  std::string name_;
};

}  // namespace sluice::chat
