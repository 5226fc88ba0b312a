#include "core/container/pickle.h"

#include "core/container/pickle_names.h"
#include "core/container/pickle_reader.h"

namespace invar {

Result<Pickle> Pickle::read(std::string label, std::string bytes) {
  Pickle pickle;
  pickle.label_ = std::move(label);
  pickle.bytes_ = std::move(bytes);
  INVAR_TRY(PickleReader(pickle).run());
  return pickle;
}

std::vector<PickleValue> Pickle::persistent() const {
  std::vector<PickleValue> found;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].kind == PickleKind::kPersistent) found.push_back({this, static_cast<uint32_t>(i)});
  }
  return found;
}

PickleKind PickleValue::kind() const { return pickle_->nodes_[id_].kind; }

std::optional<int64_t> PickleValue::integer() const {
  if (!is(PickleKind::kInt) && !is(PickleKind::kBool)) return {};
  return pickle_->nodes_[id_].number;
}

std::string_view PickleValue::text() const {
  const auto& node = pickle_->nodes_[id_];
  if (node.kind == PickleKind::kGlobal) return kAllowed[static_cast<size_t>(node.number)].name;
  if (node.kind != PickleKind::kText && node.kind != PickleKind::kBytes) return {};
  return std::string_view(pickle_->bytes_).substr(static_cast<size_t>(node.number), node.extra);
}

size_t PickleValue::size() const {
  const auto& node = pickle_->nodes_[id_];
  if (node.kind == PickleKind::kDict) return pickle_->lists_[node.extra].size() / 2;
  const bool list = node.kind == PickleKind::kTuple || node.kind == PickleKind::kList;
  return list ? pickle_->lists_[node.extra].size() : 0;
}

PickleValue PickleValue::item(size_t i) const {
  return {pickle_, i < size() && !is(PickleKind::kDict) ? pickle_->lists_[pickle_->nodes_[id_].extra][i] : 0};
}

PickleValue PickleValue::key(size_t i) const {
  return {pickle_, i < size() && is(PickleKind::kDict) ? pickle_->lists_[pickle_->nodes_[id_].extra][2 * i] : 0};
}

PickleValue PickleValue::value(size_t i) const {
  return {pickle_, i < size() && is(PickleKind::kDict) ? pickle_->lists_[pickle_->nodes_[id_].extra][2 * i + 1] : 0};
}

PickleValue PickleValue::find(std::string_view wanted) const {
  // A class has few fields; without the bound many objects could share one state that takes long to search.
  constexpr size_t kMostFields = 64;
  if (is(PickleKind::kObject)) {
    const bool searched = state().is(PickleKind::kDict) && state().size() <= kMostFields;
    return searched ? state().find(wanted) : PickleValue(pickle_, 0);
  }
  if (!is(PickleKind::kDict)) return {pickle_, 0};
  for (size_t i = size(); i-- > 0;) {
    if (key(i).is(PickleKind::kText) && key(i).text() == wanted) return value(i);
  }
  return {pickle_, 0};
}

std::string_view PickleValue::callee() const {
  if (!is(PickleKind::kCall) && !is(PickleKind::kObject)) return {};
  return PickleValue(pickle_, pickle_->lists_[pickle_->nodes_[id_].extra][0]).text();
}

PickleValue PickleValue::arguments() const {
  const auto& node = pickle_->nodes_[id_];
  if (node.kind == PickleKind::kPersistent) return {pickle_, pickle_->lists_[node.extra][0]};
  const bool has = node.kind == PickleKind::kCall || node.kind == PickleKind::kObject;
  return {pickle_, has ? pickle_->lists_[node.extra][1] : 0};
}

PickleValue PickleValue::state() const {
  return {pickle_, is(PickleKind::kObject) ? pickle_->lists_[pickle_->nodes_[id_].extra][2] : 0};
}

std::optional<std::vector<int64_t>> PickleValue::sizes() const {
  constexpr size_t kMost = 64;  // dimensions of the tensor libraries themselves
  if ((!is(PickleKind::kTuple) && !is(PickleKind::kList)) || size() > kMost) return {};
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < size(); ++i) {
    const auto number = item(i).integer();
    if (!item(i).is(PickleKind::kInt) || *number < 0) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace invar
