#include "models/chat/chat_template.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "models/chat/template_functions.hpp"
#include "models/chat/template_operators.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice::chat {
namespace {

using Kind = Expression::Kind;

// Beyond any chat: a template of loops within loops ends here.
constexpr std::uint64_t kMostSteps = 10'000'000;
constexpr std::uint64_t kStepsOfAPass = 32;  // what a pass of a loop takes beside its body
constexpr std::int64_t kLongestRange = 100'000;
constexpr std::size_t kMostNamespaces = 10'000;

enum class Flow { next, break_, continue_ };

// An error that has its line already.
class LocatedError : public InputError {
 public:
  using InputError::InputError;
};

class Run {
 public:
  explicit Run(Value::Variables variables) { scopes_.push_back(std::move(variables)); }
  // A namespace can hold itself.
  ~Run() {
    for (const Value& one : namespaces_) one.variables()->clear();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::string render(const std::vector<Statement>& body) {
    statements(body);
    return std::move(out_);
  }

 private:
  void count_steps(std::uint64_t steps, int line) {
    steps_ += steps;
    if (steps_ > kMostSteps) throw LocatedError("line {}: the template takes too many steps", line);
  }

  template <typename Function>
  auto located(int line, const Function& function) -> decltype(function()) {
    count_steps(1, line);
    try {
      return function();
    } catch (const LocatedError&) {
      throw;
    } catch (const InputError& error) {
      throw LocatedError("line {}: {}", line, error.what());
    }
  }

  Flow statements(const std::vector<Statement>& body) {
    for (const Statement& statement : body) {
      const Flow flow = located(statement.line, [&] { return run(statement); });
      if (flow != Flow::next) return flow;
    }
    return Flow::next;
  }

  Flow run(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::text: print(statement.text); return Flow::next;
      case Statement::Kind::print:
        print(printed(evaluate(*statement.expression)));
        return Flow::next;
      case Statement::Kind::if_:
        for (const Statement::Branch& branch : statement.branches) {
          if (!branch.condition || evaluate(*branch.condition).is_true())
            return statements(branch.body);
        }
        return Flow::next;
      case Statement::Kind::for_: return loop(statement);
      case Statement::Kind::set:
        assign(statement, evaluate(*statement.expression));
        return Flow::next;
      case Statement::Kind::set_block: {
        const std::string outer = std::exchange(out_, "");
        const Flow flow = statements(statement.branches.front().body);
        assign(statement, Value::of(std::exchange(out_, outer)));
        return flow;
      }
      case Statement::Kind::break_: return Flow::break_;
      case Statement::Kind::continue_: return Flow::continue_;
    }
    return Flow::next;
  }

  void print(std::string_view text) {
    if (text.size() > kLongestText - out_.size())
      throw InputError("the text gets longer than {} bytes", kLongestText);
    out_ += text;
  }

  void assign(const Statement& statement, Value value) {
    const std::string& target = statement.targets.front();
    if (statement.text.empty()) {
      scopes_.back()[target] = std::move(value);
      return;
    }
    const Value object = look_up(target);
    const auto same = [&](const Value& one) { return one.variables() == object.variables(); };
    if (std::ranges::none_of(namespaces_, same))
      throw InputError("'{}' takes no attributes: it is not what namespace() makes", target);
    (*object.variables())[statement.text] = std::move(value);
  }

  Value look_up(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return found->second;
    }
    return Value::undefined(name);
  }

  // What a loop goes over: the elements of a list, the keys of a mapping, the characters of a string.
  std::vector<Value> elements(const Value& value) {
    std::vector<Value> result;
    if (value.is_data() && value.data().is_array()) {
      for (const Json& element : value.data()) result.push_back(Value::within(value, element));
      return result;
    }
    const Value list = apply_filter("list", value, {});
    for (const Json& element : list.data()) result.push_back(Value::within(list, element));
    return result;
  }

  void bind(const Statement& statement, const Value& element) {
    Value::Variables& scope = scopes_.back();
    if (statement.targets.size() == 1) {
      scope[statement.targets.front()] = element;
      return;
    }
    if (!element.is_data() || !element.data().is_array() ||
        element.data().size() != statement.targets.size()) {
      throw InputError("{} cannot be taken apart into {} names", element.type_name(),
                       statement.targets.size());
    }
    for (std::size_t i = 0; i < statement.targets.size(); ++i) {
      scope[statement.targets[i]] = Value::within(element, element.data()[i]);
    }
  }

  static Value loop_variables(const std::vector<Value>& all, std::size_t i) {
    Value::Variables loop;
    loop["index"] = Value::of(i + 1);
    loop["index0"] = Value::of(i);
    loop["revindex"] = Value::of(all.size() - i);
    loop["revindex0"] = Value::of(all.size() - i - 1);
    loop["first"] = Value::of(i == 0);
    loop["last"] = Value::of(i + 1 == all.size());
    loop["length"] = Value::of(all.size());
    loop["previtem"] = i > 0 ? all[i - 1] : Value::undefined("loop.previtem");
    loop["nextitem"] = i + 1 < all.size() ? all[i + 1] : Value::undefined("loop.nextitem");
    return Value::with_variables(std::move(loop));
  }

  Flow loop(const Statement& statement) {
    std::vector<Value> all = elements(evaluate(*statement.expression));
    if (statement.filter) {
      std::vector<Value> kept;
      for (const Value& element : all) {
        scopes_.emplace_back();
        count_steps(kStepsOfAPass, statement.line);
        bind(statement, element);
        if (evaluate(*statement.filter).is_true()) kept.push_back(element);
        scopes_.pop_back();
      }
      all = std::move(kept);
    }
    // As in Jinja, `else` is for a loop of which no pass came to its end, be it by `continue` or `break`.
    bool any_whole = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      scopes_.emplace_back();
      count_steps(kStepsOfAPass, statement.line);
      bind(statement, all[i]);
      scopes_.back()["loop"] = loop_variables(all, i);
      const Flow flow = statements(statement.branches.front().body);
      scopes_.pop_back();
      if (flow == Flow::break_) break;
      any_whole = any_whole || flow == Flow::next;
    }
    if (any_whole || statement.branches.size() == 1) return Flow::next;
    return statements(statement.branches[1].body);
  }

  Value evaluate(const Expression& expression) {
    return located(expression.line, [&] { return evaluate_here(expression); });
  }

  Value evaluate_here(const Expression& e) {
    switch (e.kind) {
      case Kind::literal: return Value::borrowed(e.value);
      case Kind::name: return look_up(e.text);
      case Kind::list:
      case Kind::dict: return collection(e);
      case Kind::attribute: return attribute(evaluate(e.operands[0]), e.text);
      case Kind::item: return item(evaluate(e.operands[0]), evaluate(e.operands[1]));
      case Kind::slice: return slice(e);
      case Kind::call: return call(e);
      case Kind::filter: return apply_filter(e.text, evaluate(e.operands[0]), arguments(e));
      case Kind::test: return Value::of(apply_test(e.text, evaluate(e.operands[0])));
      case Kind::unary: return apply_unary(e.text, evaluate(e.operands[0]));
      case Kind::binary: return binary(e);
      case Kind::conditional:
        return evaluate(e.operands[evaluate(e.operands[1]).is_true() ? 0 : 2]);
    }
    return Value::undefined("");
  }

  Value collection(const Expression& e) {
    if (e.kind == Kind::list) {
      Json list = Json::array();
      for (const Expression& operand : e.operands) list.push_back(data_of(evaluate(operand)));
      return Value::of(std::move(list));
    }
    Json object = Json::object();
    for (std::size_t i = 0; i + 1 < e.operands.size(); i += 2) {
      const Value key = evaluate(e.operands[i]);
      if (!key.is_string())
        throw InputError("a key of a mapping must be a string, is {}", key.type_name());
      object[key.data().get<std::string>()] = data_of(evaluate(e.operands[i + 1]));
    }
    return Value::of(std::move(object));
  }

  static Value attribute(const Value& value, const std::string& name) {
    if (value.is_undefined())
      throw InputError("'{}' is not defined, so it has no '{}'", value.name(), name);
    if (value.variables() != nullptr) {
      const auto found = value.variables()->find(name);
      if (found != value.variables()->end()) return found->second;
    } else if (value.data().is_object()) {
      const auto found = value.data().find(name);
      if (found != value.data().end()) return Value::within(value, *found);
    }
    return Value::undefined(name);
  }

  static Value item(const Value& value, const Value& key) {
    if (key.is_string()) return attribute(value, key.data().get<std::string>());
    if (value.is_undefined())
      throw InputError("'{}' is not defined, so it has no items", value.name());
    if (!key.is_data() || !key.data().is_number_integer()) return Value::undefined("an item");
    const std::int64_t index = integer_of(key, "an index");
    const Value list = value.is_string() ? apply_filter("list", value, {}) : value;
    if (!list.is_data() || !list.data().is_array()) return Value::undefined("an item");
    const auto size = static_cast<std::int64_t>(list.data().size());
    if (index < -size || index >= size) return Value::undefined("item " + std::to_string(index));
    return Value::within(list,
                         list.data()[static_cast<std::size_t>(index < 0 ? index + size : index)]);
  }

  std::optional<std::int64_t> bound(const Expression& e) {
    const Value value = evaluate(e);
    if (value.is_data() && value.data().is_null()) return std::nullopt;
    return integer_of(value, "the bound of a slice");
  }

  Value slice(const Expression& e) {
    const Value whole = evaluate(e.operands[0]);
    const bool is_text = whole.is_string();
    const Value list = is_text ? apply_filter("list", whole, {}) : whole;
    if (!data_of(list).is_array()) throw InputError("{} cannot be sliced", whole.type_name());
    const auto size = static_cast<std::int64_t>(list.data().size());
    const std::int64_t step = std::clamp(bound(e.operands[3]).value_or(1), -size - 1, size + 1);
    if (step == 0) throw InputError("the step of a slice is 0");
    const auto clamped = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
      if (!at) return otherwise;
      if (*at < 0) at = std::max(*at, -size - 1) + size;
      return std::clamp<std::int64_t>(*at, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
    };
    const std::int64_t begin = clamped(bound(e.operands[1]), step > 0 ? 0 : size - 1);
    const std::int64_t end = clamped(bound(e.operands[2]), step > 0 ? size : -1);
    Json part = Json::array();
    for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
      part.push_back(list.data()[static_cast<std::size_t>(i)]);
    }
    const Value result = Value::of(std::move(part));
    return is_text ? apply_filter("join", result, {}) : result;
  }

  Arguments arguments(const Expression& e) {
    Arguments result;
    const std::size_t first_named = e.operands.size() - e.names.size();
    for (std::size_t i = 1; i < e.operands.size(); ++i) {
      Value value = evaluate(e.operands[i]);
      if (i < first_named) {
        result.positional.push_back(std::move(value));
      } else {
        result.named.emplace_back(e.names[i - first_named], std::move(value));
      }
    }
    return result;
  }

  Value call(const Expression& e) {
    const Expression& callee = e.operands.front();
    if (callee.kind == Kind::attribute) {
      const Value object = evaluate(callee.operands[0]);
      if (object.is_undefined()) throw InputError("'{}' is not defined", object.name());
      if (!has_method(callee.text, object)) {
        throw InputError("'{}' of {} is not supported", callee.text, object.type_name());
      }
      return call_method(callee.text, object, arguments(e));
    }
    if (callee.kind != Kind::name) throw InputError("what is called must have a name");
    const Arguments given = arguments(e);
    if (callee.text == "raise_exception") {
      const BoundArguments bound(callee.text, {"message"}, given);
      throw InputError("the template refuses: {}", printed(bound["message"]));
    }
    if (callee.text == "namespace" && given.positional.empty()) {
      if (namespaces_.size() == kMostNamespaces)
        throw InputError("more than {} namespaces", kMostNamespaces);
      Value::Variables variables;
      for (const auto& [name, value] : given.named) variables[name] = value;
      return namespaces_.emplace_back(Value::with_variables(std::move(variables)));
    }
    if (callee.text == "range") return range(given);
    throw InputError("the function '{}' is not supported", callee.text);
  }

  Value range(const Arguments& given) {
    // As in Python, a single argument is where it stops.
    const BoundArguments bound("range", {"start", "stop", "step", "/"}, given);
    const std::size_t count = given.positional.size();
    if (count == 0) throw InputError("'range' takes one to three integers");
    const std::int64_t begin = count == 1 ? 0 : integer_of(bound["start"], "the start of 'range'");
    const std::int64_t end =
        integer_of(bound[count == 1 ? "start" : "stop"], "the stop of 'range'");
    const std::int64_t step = count == 3 ? integer_of(bound["step"], "the step of 'range'") : 1;
    constexpr std::int64_t kFarthest = std::int64_t{1} << 40;
    for (const std::int64_t number : {begin, end, step}) {
      if (number < -kFarthest || number > kFarthest)
        throw InputError("'range' of numbers too large");
    }
    if (step == 0) throw InputError("the step of 'range' is 0");
    if ((end - begin) / step > kLongestRange)
      throw InputError("'range' of more than {} numbers", kLongestRange);
    Json list = Json::array();
    for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) list.push_back(i);
    return Value::of(std::move(list));
  }

  Value binary(const Expression& e) {
    const Value left = evaluate(e.operands[0]);
    if (e.text == "and") return left.is_true() ? evaluate(e.operands[1]) : left;
    if (e.text == "or") return left.is_true() ? left : evaluate(e.operands[1]);
    return apply_binary(e.text, left, evaluate(e.operands[1]));
  }

  std::string out_;
  std::vector<Value::Variables> scopes_;
  std::vector<Value> namespaces_;  // all that were made
  std::uint64_t steps_ = 0;
};

}  // namespace

std::string ChatTemplate::render(Value::Variables variables) const {
  return Run(std::move(variables)).render(body_);
}

}  // namespace sluice::chat
