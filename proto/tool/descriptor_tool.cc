// Works on the descriptor set of proto/invar/v1 at build time; links the full protobuf runtime, which the library never
// does.
//
//   descriptor_tool strip IN OUT       the same set without our field options and without what they import, so that the
//                                      C++ generated from it needs the lite runtime only
//   descriptor_tool table IN OUT.inc   the field table of core/config: names, numbers, kinds, defaults, ranges, docs
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace pb = google::protobuf;

constexpr int kFieldOption = 50900;  // invar.v1.field
constexpr char kOptionsFile[] = "invar/v1/options.proto";
constexpr char kDescriptorFile[] = "google/protobuf/descriptor.proto";

bool read_set(const char* path, pb::FileDescriptorSet* set) {
  std::ifstream in(path, std::ios::binary);
  return in && set->ParseFromIstream(&in);
}

void strip(pb::FileDescriptorSet* set) {
  pb::FileDescriptorSet out;
  for (const auto& file : set->file()) {
    if (file.name() == kOptionsFile || file.name() == kDescriptorFile) continue;
    pb::FileDescriptorProto copy = file;
    copy.clear_dependency();
    for (const auto& name : file.dependency()) {
      if (name != kOptionsFile) copy.add_dependency(name);
    }
    for (auto& message : *copy.mutable_message_type()) {
      for (auto& field : *message.mutable_field()) field.mutable_options()->DiscardUnknownFields();
    }
    *out.add_file() = copy;
  }
  *set = out;
}

// A C++ string literal.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// A comment as one paragraph.
std::string comment_of(const pb::SourceLocation& location) {
  std::string out;
  for (const char c : location.leading_comments + " " + location.trailing_comments) {
    const char plain = c == '\n' ? ' ' : c;
    if (plain == ' ' && (out.empty() || out.back() == ' ')) continue;
    out += plain;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

template <typename Descriptor>
std::string doc_of(const Descriptor* descriptor) {
  pb::SourceLocation location;
  return descriptor->GetSourceLocation(&location) ? comment_of(location) : std::string();
}

// The values of our option on one field, as read with the option's own descriptor.
class Info {
 public:
  Info(const pb::DescriptorPool& pool, pb::DynamicMessageFactory* factory, const pb::FieldDescriptor& field) {
    type_ = pool.FindMessageTypeByName("invar.v1.FieldInfo");
    message_.reset(factory->GetPrototype(type_)->New());
    // Options are known by number only here: the extension is not compiled in.
    const auto& unknown = field.options().GetReflection()->GetUnknownFields(field.options());
    for (int i = 0; i < unknown.field_count(); ++i) {
      if (unknown.field(i).number() == kFieldOption) message_->MergeFromString(unknown.field(i).length_delimited());
    }
  }
  bool has(const char* name) const { return message_->GetReflection()->HasField(*message_, at(name)); }
  std::string text(const char* name) const { return message_->GetReflection()->GetString(*message_, at(name)); }
  bool flag(const char* name) const { return message_->GetReflection()->GetBool(*message_, at(name)); }
  std::string number(const char* name) const {
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%.17g", message_->GetReflection()->GetDouble(*message_, at(name)));
    return buffer;
  }

 private:
  const pb::FieldDescriptor* at(const char* name) const { return type_->FindFieldByName(name); }
  const pb::Descriptor* type_;
  std::unique_ptr<pb::Message> message_;
};

const char* kind_of(const pb::FieldDescriptor& field) {
  if (field.is_map()) return "kMap";
  switch (field.type()) {
    case pb::FieldDescriptor::TYPE_BOOL: return "kBool";
    case pb::FieldDescriptor::TYPE_INT32: return "kInt32";
    case pb::FieldDescriptor::TYPE_INT64: return "kInt64";
    case pb::FieldDescriptor::TYPE_UINT64: return "kUint64";
    case pb::FieldDescriptor::TYPE_DOUBLE: return "kDouble";
    case pb::FieldDescriptor::TYPE_STRING: return "kString";
    case pb::FieldDescriptor::TYPE_ENUM: return "kEnum";
    case pb::FieldDescriptor::TYPE_MESSAGE: return "kMessage";
    default: return nullptr;
  }
}

// "TARGET_FORMAT_FP8_BLOCK" is "fp8_block": the prefix is that of the zero value without UNSPECIFIED.
std::string short_name(const pb::EnumDescriptor& type, const std::string& name) {
  const std::string zero = type.FindValueByNumber(0)->name();
  const std::string prefix = zero.substr(0, zero.size() - std::string("UNSPECIFIED").size());
  std::string out = name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

class Emitter {
 public:
  explicit Emitter(const pb::DescriptorPool& pool) : pool_(pool), factory_(&pool) {}

  bool add(const pb::FileDescriptor& file) {
    for (int i = 0; i < file.enum_type_count(); ++i) {
      enum_index_.emplace(file.enum_type(i), enum_index_.size());
      enums_.push_back(file.enum_type(i));
    }
    for (int i = 0; i < file.message_type_count(); ++i) {
      message_index_.emplace(file.message_type(i), message_index_.size());
      messages_.push_back(file.message_type(i));
    }
    return true;
  }

  bool write(std::ostream& out) {
    out << "// Generated from proto/invar/v1 by proto/tool/descriptor_tool.\n";
    for (size_t e = 0; e < enums_.size(); ++e) {
      out << "constexpr EnumValue kEnumValues" << e << "[] = {\n";
      for (int i = 0; i < enums_[e]->value_count(); ++i) {
        const auto* value = enums_[e]->value(i);
        out << "    {" << quoted(short_name(*enums_[e], value->name())) << ", " << quoted(value->name()) << ", "
            << value->number() << ", " << quoted(doc_of(value)) << "},\n";
      }
      out << "};\n";
    }
    out << "constexpr EnumType kEnums[] = {\n";
    for (size_t e = 0; e < enums_.size(); ++e) {
      out << "    {" << quoted(enums_[e]->full_name()) << ", kEnumValues" << e << "},\n";
    }
    out << "};\nextern const MessageType kMessages[" << messages_.size() << "];\n";
    for (size_t m = 0; m < messages_.size(); ++m) {
      if (!write_fields(out, m)) return false;
    }
    out << "const MessageType kMessages[" << messages_.size() << "] = {\n";
    for (size_t m = 0; m < messages_.size(); ++m) {
      const bool empty = messages_[m]->field_count() == 0;
      out << "    {" << quoted(messages_[m]->full_name()) << ", " << quoted(doc_of(messages_[m])) << ", "
          << (empty ? std::string("{}") : "kFields" + std::to_string(m)) << "},\n";
    }
    out << "};\n";
    return true;
  }

 private:
  bool write_fields(std::ostream& out, size_t m) {
    const pb::Descriptor& message = *messages_[m];
    if (message.field_count() == 0) return true;
    out << "constexpr Field kFields" << m << "[] = {\n";
    for (int i = 0; i < message.field_count(); ++i) {
      const pb::FieldDescriptor& field = *message.field(i);
      const char* kind = kind_of(field);
      const bool scalar = !field.is_repeated() && field.type() != pb::FieldDescriptor::TYPE_MESSAGE;
      if (kind == nullptr || (scalar && !field.has_presence())) {
        std::fprintf(stderr, "%s: a type without table support, or a scalar without `optional`\n",
                     field.full_name().c_str());
        return false;
      }
      if (field.is_map() && field.message_type()->field(1)->type() != pb::FieldDescriptor::TYPE_STRING) {
        std::fprintf(stderr, "%s: maps are from string to string\n", field.full_name().c_str());
        return false;
      }
      const Info info(pool_, &factory_, field);
      out << "    {.name = " << quoted(field.name()) << ", .number = " << field.number() << ", .kind = Kind::" << kind
          << ", .repeated = " << (field.is_repeated() && !field.is_map() ? "true" : "false");
      if (field.type() == pb::FieldDescriptor::TYPE_ENUM) {
        out << ", .enumeration = &kEnums[" << enum_index_.at(field.enum_type()) << "]";
      }
      if (field.type() == pb::FieldDescriptor::TYPE_MESSAGE && !field.is_map()) {
        out << ", .message = &kMessages[" << message_index_.at(field.message_type()) << "]";
      }
      if (info.has("default")) out << ", .default_text = " << quoted(info.text("default"));
      if (info.has("unit")) out << ", .unit = " << quoted(info.text("unit"));
      if (info.has("min")) out << ", .has_min = true, .min = " << info.number("min");
      if (info.has("max")) out << ", .has_max = true, .max = " << info.number("max");
      if (info.has("above")) out << ", .has_above = true, .above = " << info.number("above");
      if (info.flag("required")) out << ", .required = true";
      if (info.flag("presence")) out << ", .presence = true";
      out << ", .doc = " << quoted(doc_of(&field)) << "},\n";
    }
    out << "};\n";
    return true;
  }

  const pb::DescriptorPool& pool_;
  pb::DynamicMessageFactory factory_;
  std::vector<const pb::EnumDescriptor*> enums_;
  std::vector<const pb::Descriptor*> messages_;
  std::map<const pb::EnumDescriptor*, size_t> enum_index_;
  std::map<const pb::Descriptor*, size_t> message_index_;
};

int table(const pb::FileDescriptorSet& set, const char* path) {
  pb::DescriptorPool pool;
  Emitter emitter(pool);
  for (const auto& file : set.file()) {
    const pb::FileDescriptor* built = pool.BuildFile(file);
    if (built == nullptr) return 1;
    if (file.name() != kOptionsFile && file.name() != kDescriptorFile) emitter.add(*built);
  }
  std::ostringstream text;
  if (!emitter.write(text)) return 1;
  std::ofstream out(path, std::ios::binary);
  out << text.str();
  return out.flush() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  pb::FileDescriptorSet set;
  if (argc != 4 || !read_set(argv[2], &set)) {
    std::fprintf(stderr, "usage: descriptor_tool strip|table IN OUT\n");
    return 2;
  }
  if (std::string(argv[1]) == "table") return table(set, argv[3]);
  strip(&set);
  std::ofstream out(argv[3], std::ios::binary);
  return set.SerializeToOstream(&out) && out.flush() ? 0 : 1;
}
