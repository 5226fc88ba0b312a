#include "core/container/pickle.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

using std::string_literals::operator""s;

std::string reason(const std::string& bytes) { return Pickle::read("x.bin", bytes).status().reason(); }
std::string message(const std::string& bytes) { return Pickle::read("x.bin", bytes).status().message(); }

TEST(Pickle, ReadsNumbersTextsAndContainers) {
  // {"a": [1, -2, 300, True, None, 2.5, b"xy"], "b": (2**40, torch.Size([3, 4]))} as protocol 4 would write it.
  const std::string bytes =
      "\x80\x04}(\x8c\x01"
      "a](K\x01J\xfe\xff\xff\xffM\x2c\x01\x88NG\x40\x04\0\0\0\0\0\0C\x02xye"
      "\x8c\x01"
      "b\x8a\x06\0\0\0\0\0\x01\x8c\x05torch\x8c\x04Size\x93](K\x03K\x04et\x85R\x86u."s;
  // The torch.Size above takes a list through a tuple that TUPLE1 makes; write it as torch does instead.
  const std::string size = "ctorch\nSize\nK\x03K\x04\x86\x85R"s;
  const std::string good =
      "\x80\x02}(X\x01\0\0\0a](K\x01J\xfe\xff\xff\xffM\x2c\x01\x88NG\x40\x04\0\0\0\0\0\0C\x02xye"
      "X\x01\0\0\0b\x8a\x06\0\0\0\0\0\x01"s +
      size + "\x86u.rest";
  const auto pickle = Pickle::read("x.bin", good);
  ASSERT_TRUE(pickle.ok()) << pickle.status().message();
  EXPECT_EQ(pickle->consumed(), good.size() - 4);
  const PickleValue list = pickle->root().find("a"), pair = pickle->root().find("b");
  ASSERT_EQ(list.size(), 7u);
  EXPECT_EQ(list.item(0).integer(), 1);
  EXPECT_EQ(list.item(1).integer(), -2);
  EXPECT_EQ(list.item(2).integer(), 300);
  EXPECT_TRUE(list.item(3).is(PickleKind::kBool));
  EXPECT_TRUE(list.item(4).is(PickleKind::kNone));
  EXPECT_TRUE(list.item(5).is(PickleKind::kFloat));
  EXPECT_EQ(list.item(6).text(), "xy");
  EXPECT_EQ(pair.item(0).integer(), int64_t{1} << 40);
  EXPECT_EQ(pair.item(1).sizes(), (std::vector<int64_t>{3, 4}));
  EXPECT_FALSE(Pickle::read("x.bin", bytes).ok());
}

TEST(Pickle, NamesTheFunctionItDoesNotImport) {
  for (const std::string& bytes : {"\x80\x02"
                                   "cposix\nsystem\nX\x01\0\0\0a\x85R."s,
                                   "cposix\nsystem\n(X\x01\0\0\0atR."s, "(X\x01\0\0\0aiposix\nsystem\n."s,
                                   "\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x01"
                                   "a\x85R."s,
                                   "\x80\x02}X\x01\0\0\0wcposix\nsystem\ns."s}) {
    EXPECT_EQ(reason(bytes), "pickle.unsafe_global");
    EXPECT_NE(message(bytes).find("posix.system"), std::string::npos) << message(bytes);
    EXPECT_NE(message(bytes).find("x.bin"), std::string::npos);
  }
  // Names that only look like allowed ones.
  for (const char* name :
       {"torch\nload", "torch\nhub.load", "torch.hub\nload", "torch.Float\nStorage", "builtins\neval",
        "torch\nFloatStorage.__class__", "torch._utils\n_rebuild_tensor_v2.__globals__", "\n", "os\n"}) {
    EXPECT_EQ(reason(cat("\x80\x02", "c", name, "\n.")), "pickle.unsafe_global") << name;
  }
}

TEST(Pickle, RefusesWhatCheckpointsDoNotNeed) {
  for (const std::string& bytes : {"\x80\x02\x82\x01."s,
                                   "\x80\x02"
                                   "Pabc\n."s,
                                   "I1\n."s, "\x80\x02]2."s,
                                   "\x80\x04"
                                   "ctorch\nSize\n)}\x92."s,
                                   "(ctorch\nSize\no."s, "\x97."s}) {
    EXPECT_EQ(reason(bytes), "pickle.unsupported_opcode") << bytes;
  }
}

TEST(Pickle, RefusesPicklesThatAreDamaged) {
  for (const std::string& bytes : {"\x80\x02K\x01K\x02."s,
                                   "."s,
                                   "t."s,
                                   "a."s,
                                   "K\x01K\x02"
                                   "a."s,
                                   "]}s."s,
                                   "(K\x01."s,
                                   "h\x05."s,
                                   "q\x01."s,
                                   "b."s,
                                   "R."s,
                                   "K\x01)R."s,
                                   "ctorch\nSize\nK\x01R."s,
                                   "](K\x01u."s,
                                   "}(K\x01u."s,
                                   "K\x01r\xff\xff\xff\x7f."s,
                                   "(0."s,
                                   "e."s,
                                   "u."s,
                                   "\x85."s,
                                   "K\x01}b."s,
                                   "\x80\x01."s,
                                   "\x80\x09."s,
                                   "ctorch"s,
                                   "\x94."s,
                                   "(K\x01\x85"
                                   "e."s}) {
    EXPECT_EQ(reason(bytes), "pickle.bad") << ::testing::PrintToString(bytes);
  }
  for (const std::string& bytes : {""s, "K"s, "\x80\x02}"s,
                                   "X\xff\xff\xff\xff"
                                   "a."s,
                                   "\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s, "B\x05\0\0\0abc"s,
                                   "\x95\xff\xff\xff\xff\xff\xff\xff\xff."s, "\x8b\xff\xff\xff\x7f."s}) {
    EXPECT_EQ(reason(bytes), "pickle.truncated") << ::testing::PrintToString(bytes);
  }
}

TEST(Pickle, ValuesStayInProportionToTheBytes) {
  // Every round makes a list of all lists so far: values grow with the square of the bytes.
  std::string bytes = "\x80\x02]"s;
  std::string copy = "q\0c__builtin__\nlist\nh\0\x85R"s;
  for (int i = 0; i < 20; ++i) {
    bytes += "q\1(" + std::string(5000, 'N') + "e";
    for (int k = 0; k < 500; ++k) bytes += "c__builtin__\nlist\nh\1\x85R0"s;
  }
  bytes += ".";
  EXPECT_EQ(reason(bytes), "pickle.bad");
  EXPECT_NE(message(bytes).find("more values"), std::string::npos) << message(bytes);
}

}  // namespace
}  // namespace invar
