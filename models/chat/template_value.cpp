#include "models/chat/template_value.hpp"

namespace sluice::chat {

bool Value::is_true() const {
  if (!data_) return variables_ != nullptr;
  switch (data_->type()) {
    case Json::value_t::boolean: return data_->get<bool>();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float: return data_->get<double>() != 0.0;
    case Json::value_t::string: return !data_->get_ref<const std::string&>().empty();
    default: return !data_->empty();  // null is empty
  }
}

std::string_view Value::type_name() const {
  if (variables_) return "a namespace";
  if (!data_) return "not defined";
  switch (data_->type()) {
    case Json::value_t::null: return "none";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::string: return "a string";
    case Json::value_t::array: return "a list";
    case Json::value_t::object: return "a mapping";
    default: return "a number";
  }
}

}  // namespace sluice::chat
