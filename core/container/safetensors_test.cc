#include "core/container/safetensors.h"

#include <gtest/gtest.h>

#include "core/base/memory_files.h"

namespace invar {
namespace {

// A file with this header text and `data_bytes` zeros behind it.
std::unique_ptr<RandomAccessFile> file_with(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return memory_file("t.safetensors", bytes + header + std::string(data_bytes, '\0'));
}

std::string reason(const std::string& header, size_t data_bytes, const SafetensorsLimits& limits = {}) {
  const auto read = SafetensorsHeader::read(*file_with(header, data_bytes), limits);
  return read.ok() ? "ok" : read.status().reason();
}

std::string record(const std::string& dtype, const std::string& shape, int64_t begin, int64_t end) {
  return cat("{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":[", begin, ",", end, "]}");
}

TEST(SafetensorsHeader, ReadsScalarsEmptyTensorsAndMetadata) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"\"},\"s\":" + record("F32", "[]", 0, 4) +
                             ",\"e\":" + record("BF16", "[0,7]", 4, 4) + ",\"f4\":" + record("F4", "[2,3]", 4, 7) + "}";
  const auto read = SafetensorsHeader::read(*file_with(header, 7), {}, 3);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->tensors().size(), 3u);
  EXPECT_EQ(read->metadata()[0].second, "pt");
  EXPECT_EQ(read->metadata()[1].second, "");
  const TensorInfo* scalar = read->find("s");
  ASSERT_NE(scalar, nullptr);
  EXPECT_EQ(scalar->file, 3);
  EXPECT_EQ(scalar->begin, read->data_begin());
  EXPECT_TRUE(scalar->shape.empty());
  EXPECT_EQ(read->find("f4")->dtype, DType::kE2M1);
  EXPECT_EQ(read->find("missing"), nullptr);
}

TEST(SafetensorsHeader, AcceptsAnEmptyFileOfTensorsAndExtraFields) {
  EXPECT_EQ(reason("{}", 0), "ok");
  EXPECT_EQ(reason("{\"a\":{\"note\":{\"deep\":[1,{\"x\":[null]}]},\"dtype\":\"U8\",\"more\":[-1.5,[2]],\"shape\":[2],"
                   "\"data_offsets\":[0,2]}}",
                   2),
            "ok");
}

TEST(SafetensorsHeader, RefusesWhatIsNotAHeader) {
  for (const char* text : {"", "   ", "[]", "3", "\"a\"", "null", "{", "{}x", "{}{}", "\xef\xbb\xbf{}", "{\"a\":1}",
                           "{\"a\":[]}", "{\"a\":null}", "{\"a\":{}}", "{'a':{}}", "{\"a\":{\"dtype\":3}}",
                           "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                           "{\"a\":{\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]}}"}) {
    EXPECT_EQ(reason(text, 1), "safetensors.bad_header") << text;
  }
  EXPECT_EQ(reason(std::string("{\"a\":{\"x\":") + std::string(50, '[') + std::string(50, ']') + "}}", 0),
            "safetensors.bad_header");
}

TEST(SafetensorsHeader, WantsPlainNonNegativeIntegers) {
  for (const char* shape : {"[-1]", "[1.0]", "[1e0]", "[true]", "[\"1\"]", "[[1]]", "[null]", "{}", "1", "[-0]",
                            "[1,1,1,1,1,1,1,1,1]", "[36893488147419103232]"}) {
    EXPECT_EQ(reason("{\"a\":" + record("U8", shape, 0, 1) + "}", 1), "safetensors.bad_shape") << shape;
  }
  EXPECT_EQ(reason("{\"a\":" + record("U8", "[9223372036854775808,0]", 0, 0) + "}", 0), "safetensors.size_overflow");
  for (const char* offsets :
       {"[0]", "[]", "[0,1,1]", "[0,\"1\"]", "[0,1.0]", "3", "[1,0]", "[0,9223372036854775807]"}) {
    EXPECT_EQ(reason(cat("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":", offsets, "}}"), 1),
              "safetensors.bad_offsets")
        << offsets;
  }
}

TEST(SafetensorsHeader, ChecksTheProductInOrderWithoutOverflow) {
  EXPECT_EQ(reason("{\"a\":" + record("F32", "[4611686018427387904,2,0]", 0, 0) + "}", 0), "safetensors.size_overflow");
  EXPECT_EQ(reason("{\"a\":" + record("F32", "[0,4611686018427387904,2]", 0, 0) + "}", 0), "ok");
  EXPECT_EQ(reason("{\"a\":" + record("F4", "[3]", 0, 2) + "}", 2), "safetensors.size_mismatch");
}

TEST(SafetensorsHeader, RefusesBadMetadata) {
  for (const char* metadata : {"{\"a\":1}", "{\"a\":null}", "{\"a\":[]}", "[]", "\"x\"", "{\"a\":\"1\",\"a\":\"2\"}"}) {
    EXPECT_EQ(reason(cat("{\"__metadata__\":", metadata, "}"), 0), "safetensors.bad_metadata") << metadata;
  }
  EXPECT_EQ(reason("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "safetensors.bad_metadata");
}

TEST(SafetensorsHeader, KeepsItsLimits) {
  SafetensorsLimits limits;
  limits.tensors = 1;
  limits.name_bytes = 3;
  limits.header_bytes = 200;
  const std::string one = record("U8", "[0]", 0, 0);
  EXPECT_EQ(reason("{\"a\":" + one + "}", 0, limits), "ok");
  EXPECT_EQ(reason("{\"a\":" + one + ",\"b\":" + one + "}", 0, limits), "safetensors.too_many_tensors");
  EXPECT_EQ(reason("{\"long\":" + one + "}", 0, limits), "safetensors.name_too_long");
  EXPECT_EQ(reason("{\"a\":" + one + std::string(200, ' ') + "}", 0, limits), "safetensors.header_too_large");
}

TEST(SafetensorsHeader, TilesTheDataExactly) {
  const auto two = [](int64_t a_end, int64_t b_begin, int64_t b_end) {
    return "{\"a\":" + record("U8", cat("[", a_end, "]"), 0, a_end) +
           ",\"b\":" + record("U8", cat("[", b_end - b_begin, "]"), b_begin, b_end) + "}";
  };
  EXPECT_EQ(reason(two(4, 4, 8), 8), "ok");
  EXPECT_EQ(reason(two(4, 5, 8), 8), "safetensors.hole");
  EXPECT_EQ(reason(two(4, 3, 8), 8), "safetensors.overlap");
  EXPECT_EQ(reason(two(4, 2, 2), 4), "safetensors.overlap");
  EXPECT_EQ(reason(two(4, 4, 8), 7), "safetensors.truncated");
  EXPECT_EQ(reason(two(4, 4, 8), 9), "safetensors.trailing_data");
  EXPECT_EQ(reason("{}", 1), "safetensors.trailing_data");
}

TEST(SafetensorsHeader, MessagesQuoteHostileNamesSafely) {
  const std::string name = "a\\n" + std::string(1000, 'x') + "z";
  const auto read = SafetensorsHeader::read(*file_with("{\"" + name + "\":" + record("U8", "[2]", 0, 1) + "}", 1));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  EXPECT_LT(read.status().message().size(), 500u);
  EXPECT_NE(read.status().message().find("needs 2 bytes but its offsets span 1"), std::string::npos);
}

TEST(SafetensorsFile, RefusesReadsOutsideATensor) {
  MemoryFiles files;
  files.put("/t.safetensors", std::string("\x38\0\0\0\0\0\0\0", 8) +
                                  "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   " + "abcd");
  const auto file = SafetensorsFile::open(files, "/t.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const TensorInfo& tensor = *file->header().find("a");
  std::vector<std::byte> bytes(2);
  ASSERT_TRUE(file->read(tensor, 2, bytes).ok());
  EXPECT_EQ(static_cast<char>(bytes[1]), 'd');
  EXPECT_EQ(file->read(tensor, 3, bytes).reason(), "tensor.out_of_range");
  EXPECT_EQ(file->read(tensor, -1, bytes).reason(), "tensor.out_of_range");
}

TEST(Utf8, KnowsItsEdges) {
  for (const char* good : {"", "a", "\xc3\xbc", "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xe4\xb8", "\xc3\x28"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace invar
