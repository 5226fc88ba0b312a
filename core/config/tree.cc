#include "core/config/tree.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

namespace invar::config {

namespace {

namespace io = google::protobuf::io;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2 };

WireType wire_type_of(const Field& field) {
  switch (field.kind) {
    case Kind::kDouble: return kFixed64;
    case Kind::kString:
    case Kind::kMessage:
    case Kind::kMap: return kBytes;
    default: return kVarint;
  }
}

Status corrupt(const std::string& path) {
  return Error(Code::kInvalidArgument, "config.corrupt",
               cat(path.empty() ? "message" : path, ": damaged protobuf bytes"));
}

// Reads one varint or fixed value.
bool read_number(io::CodedInputStream& in, const Field& field, Value* value) {
  if (field.kind == Kind::kDouble) {
    google::protobuf::uint64 bits;
    if (!in.ReadLittleEndian64(&bits)) return false;
    value->bits = bits;
    return true;
  }
  google::protobuf::uint64 bits;
  if (!in.ReadVarint64(&bits)) return false;
  // int32 and enums are sign-extended to 64 bits on the wire; anything above is cut, as protobuf does.
  if (field.kind == Kind::kInt32 || field.kind == Kind::kEnum) {
    value->bits = static_cast<uint64_t>(int64_t{static_cast<int32_t>(bits)});
  } else {
    value->bits = field.kind == Kind::kBool ? (bits != 0) : bits;
  }
  return true;
}

bool read_block(io::CodedInputStream& in, std::string_view whole, std::string_view* block) {
  google::protobuf::uint32 size;
  if (!in.ReadVarint32(&size)) return false;
  const size_t at = static_cast<size_t>(in.CurrentPosition());
  if (size > whole.size() - at) return false;
  *block = whole.substr(at, size);
  return in.Skip(static_cast<int>(size));
}

Status read_node(Node& node, const std::string& path, std::string_view bytes);

Status read_map_entry(std::string_view block, const std::string& path, Value* value) {
  io::CodedInputStream in(reinterpret_cast<const uint8_t*>(block.data()), static_cast<int>(block.size()));
  while (const uint32_t tag = in.ReadTag()) {
    std::string_view part;
    if ((tag != (1u << 3 | kBytes) && tag != (2u << 3 | kBytes)) || !read_block(in, block, &part)) return corrupt(path);
    (tag >> 3 == 1 ? value->key : value->text) = part;
  }
  if (!in.ConsumedEntireMessage()) return corrupt(path);
  if (!valid_utf8(value->key) || !valid_utf8(value->text)) {
    return Error(Code::kInvalidArgument, "config.not_utf8", cat(path, ": not UTF-8"));
  }
  return {};
}

Status read_block_value(Node& node, const Field& field, const std::string& path, std::string_view block) {
  auto& values = node.of(field);
  if (field.kind == Kind::kMessage) {
    if (field.repeated || values.empty()) {
      values.emplace_back();
      values.back().node = std::make_unique<Node>(*field.message);
    }
    return read_node(*values.back().node, path, block);
  }
  Value value;
  if (field.kind == Kind::kMap) {
    INVAR_TRY(read_map_entry(block, path, &value));
  } else {
    if (!valid_utf8(block)) return Error(Code::kInvalidArgument, "config.not_utf8", cat(path, ": not UTF-8"));
    value.text = block;
    if (!field.repeated) values.clear();
  }
  values.push_back(std::move(value));
  return {};
}

// Repeated numbers may come packed in one block.
Status read_packed(Node& node, const Field& field, const std::string& path, std::string_view block) {
  io::CodedInputStream in(reinterpret_cast<const uint8_t*>(block.data()), static_cast<int>(block.size()));
  while (static_cast<size_t>(in.CurrentPosition()) < block.size()) {
    Value value;
    if (!read_number(in, field, &value)) return corrupt(path);
    node.of(field).push_back(std::move(value));
  }
  return {};
}

// As protobuf does with a key that comes twice.
void keep_last_of_each_key(std::vector<Value>& values) {
  std::stable_sort(values.begin(), values.end(), [](const Value& a, const Value& b) { return a.key < b.key; });
  const auto end =
      std::unique(values.rbegin(), values.rend(), [](const Value& a, const Value& b) { return a.key == b.key; });
  values.erase(values.begin(), end.base());
}

Status read_node(Node& node, const std::string& path, std::string_view bytes) {
  io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  while (const uint32_t tag = in.ReadTag()) {
    const Field* field = node.type->find(static_cast<int32_t>(tag >> 3));
    if (field == nullptr) {
      return Error(Code::kInvalidArgument, "config.unknown_field",
                   cat(join_key(path, cat("#", tag >> 3)), ": ", node.type->short_name(), " has no field number ",
                       tag >> 3, "; was it written for a newer version?"));
    }
    const std::string here = join_key(path, field->name);
    const WireType expected = wire_type_of(*field);
    std::string_view block;
    if ((tag & 7) == kBytes) {
      if (!read_block(in, bytes, &block)) return corrupt(here);
      if (expected == kBytes) {
        INVAR_TRY(read_block_value(node, *field, here, block));
      } else if (field->repeated) {
        INVAR_TRY(read_packed(node, *field, here, block));
      } else {
        return corrupt(here);
      }
      continue;
    }
    Value value;
    if ((tag & 7) != expected || !read_number(in, *field, &value)) return corrupt(here);
    if (!field->repeated) node.of(*field).clear();
    node.of(*field).push_back(std::move(value));
  }
  if (!in.ConsumedEntireMessage()) return corrupt(path);
  for (const Field& field : node.type->fields) {
    if (field.kind == Kind::kMap) keep_last_of_each_key(node.of(field));
  }
  return {};
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_block(std::string& out, int32_t number, std::string_view block) {
  put_varint(out, static_cast<uint64_t>(number) << 3 | kBytes);
  put_varint(out, block.size());
  out += block;
}

void put_number(std::string& out, const Field& field, const Value& value) {
  if (field.kind != Kind::kDouble) return put_varint(out, value.bits);
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value.bits >> shift);
}

void put_field(std::string& out, const Field& field, const std::vector<Value>& values) {
  if (values.empty()) return;
  if (wire_type_of(field) != kBytes) {
    std::string packed;
    for (const Value& value : values) {
      if (!field.repeated) put_varint(out, static_cast<uint64_t>(field.number) << 3 | wire_type_of(field));
      put_number(field.repeated ? packed : out, field, value);
    }
    if (field.repeated) put_block(out, field.number, packed);
    return;
  }
  for (const Value& value : values) {
    if (field.kind == Kind::kString) put_block(out, field.number, value.text);
    if (field.kind == Kind::kMessage) put_block(out, field.number, to_wire(*value.node));
  }
}

}  // namespace

Node& Node::child(const Field& field) {
  auto& values = of(field);
  if (values.empty()) {
    values.emplace_back();
    values.back().node = std::make_unique<Node>(*field.message);
  }
  return *values.back().node;
}

std::string join_key(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : cat(path, ".", name);
}

bool valid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const uint8_t lead = byte(i);
    const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || length > text.size() - i) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    }
    // Overlong forms, surrogates and what lies above U+10FFFF.
    if (lead == 0xE0 && byte(i + 1) < 0xA0) return false;
    if (lead == 0xED && byte(i + 1) > 0x9F) return false;
    if (lead == 0xF0 && byte(i + 1) < 0x90) return false;
    if (lead == 0xF4 && byte(i + 1) > 0x8F) return false;
    i += length;
  }
  return true;
}

Result<Node> from_wire(const MessageType& type, std::string_view bytes) {
  constexpr size_t kLargest = size_t{1} << 30;
  if (bytes.size() > kLargest) {
    return Error(Code::kInvalidArgument, "config.too_large",
                 cat(type.short_name(), ": ", bytes.size(), " bytes, at most ", kLargest, " are read"));
  }
  Node node(type);
  INVAR_TRY(read_node(node, "", bytes));
  return node;
}

std::string to_wire(const Node& node) {
  std::vector<const Field*> order;
  for (const Field& field : node.type->fields) order.push_back(&field);
  std::sort(order.begin(), order.end(), [](const Field* a, const Field* b) { return a->number < b->number; });
  std::string out;
  for (const Field* field : order) {
    const auto& values = node.of(*field);
    if (field->kind != Kind::kMap) {
      put_field(out, *field, values);
      continue;
    }
    std::vector<const Value*> entries;
    for (const Value& value : values) entries.push_back(&value);
    std::sort(entries.begin(), entries.end(), [](const Value* a, const Value* b) { return a->key < b->key; });
    for (const Value* value : entries) {
      std::string entry;
      put_block(entry, 1, value->key);
      put_block(entry, 2, value->text);
      put_block(out, field->number, entry);
    }
  }
  return out;
}

}  // namespace invar::config
