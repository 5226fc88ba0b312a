#include "core/container/stored_boxes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/base/memory_files.h"
#include "core/base/rng.h"

namespace invar {
namespace {

std::shared_ptr<const RandomAccessFile> numbers(int64_t count) {
  std::string bytes(static_cast<size_t>(count) * 4, '\0');
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<uint32_t>(i);
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return memory_file("numbers", bytes);
}

std::vector<uint32_t> read(const StoredBoxes& boxes, int64_t first, int64_t count) {
  std::vector<uint32_t> values(static_cast<size_t>(count));
  const Status status = boxes.read(first * 4, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

std::string reason(std::vector<int64_t> shape, std::vector<StoredBox> boxes) {
  return StoredBoxes::make("t", "bad", std::move(shape), 4, std::move(boxes)).status().reason();
}

// Row-major element i of a view, by its definition.
uint32_t expected(const StoredBox& box, int64_t element) {
  int64_t at = 0;
  for (size_t d = box.sizes.size(); d-- > 0; element /= box.sizes[d]) at += element % box.sizes[d] * box.strides[d];
  return static_cast<uint32_t>(box.begin / 4 + at);
}

TEST(StoredBoxes, ReadViewsOfEveryKindInRunsOfEveryKind) {
  const auto file = numbers(4'000'000);
  const std::vector<StoredBox> views = {
      {file, 0, {0, 0}, {20, 30}, {30, 1}},        // plain
      {file, 8, {0, 0}, {20, 30}, {50, 1}},        // columns of a matrix
      {file, 0, {0, 0}, {30, 20}, {1, 30}},        // transposed
      {file, 0, {0, 0}, {1500, 2000}, {1, 1500}},  // transposed, too far apart for one span
      {file, 0, {0, 0, 0}, {3, 1300, 900}, {1170000, 1, 1300}},
      {file, 0, {0, 0, 0}, {4, 5, 6}, {1, 24, 4}},      // permuted
      {file, 4, {0, 0}, {7, 9}, {0, 2}},                // expanded, every second
      {file, 0, {0, 0}, {3, 3}, {1'000'000, 300'000}},  // single elements far apart
      {file, 12, {0}, {1}, {77}},
      {file, 12, {}, {}, {}},
  };
  Rng rng(3);
  for (const StoredBox& view : views) {
    const auto boxes = StoredBoxes::make("t", "bad", view.sizes, 4, {view});
    ASSERT_TRUE(boxes.ok()) << boxes.status().message();
    int64_t count = 1;
    for (const int64_t size : view.sizes) count *= size;
    for (int round = 0; round < 12; ++round) {
      const int64_t first = static_cast<int64_t>(rng.next_below(static_cast<uint64_t>(count)));
      const int64_t n =
          1 + static_cast<int64_t>(rng.next_below(static_cast<uint64_t>(std::min<int64_t>(count - first, 20000))));
      const auto got = read(*boxes, first, n);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(got[static_cast<size_t>(i)], expected(view, first + i)) << first << " " << i;
      }
    }
  }
}

TEST(StoredBoxes, JoinPiecesOfAGrid) {
  // 5 x 7 in pieces of 2 and 3 rows, 4 and 3 columns; piece values are 100 * piece + position.
  const auto file = numbers(500);
  std::vector<StoredBox> pieces;
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t c = 0; c < 2; ++c) {
      const int64_t rows = r == 0 ? 2 : 3, cols = c == 0 ? 4 : 3;
      pieces.push_back({file, (2 * r + c) * 400, {2 * r, 4 * c}, {rows, cols}, {cols, 1}});
    }
  }
  std::swap(pieces[0], pieces[3]);
  const auto boxes = StoredBoxes::make("t", "bad", {5, 7}, 4, pieces);
  ASSERT_TRUE(boxes.ok()) << boxes.status().message();
  std::vector<uint32_t> whole;
  for (uint32_t r = 0; r < 5; ++r) {
    for (uint32_t c = 0; c < 7; ++c) {
      const uint32_t piece = 2 * (r >= 2) + (c >= 4), cols = c < 4 ? 4 : 3;
      whole.push_back(100 * piece + (r >= 2 ? r - 2 : r) * cols + (c >= 4 ? c - 4 : c));
    }
  }
  for (int64_t first = 0; first < 35; ++first) {
    for (int64_t n = 1; first + n <= 35; ++n) {
      EXPECT_EQ(read(*boxes, first, n), std::vector<uint32_t>(whole.begin() + first, whole.begin() + first + n));
    }
  }
  std::vector<std::byte> odd(5);
  ASSERT_TRUE(boxes->read(3, odd).ok());
  EXPECT_EQ(std::memcmp(odd.data(), reinterpret_cast<const char*>(whole.data()) + 3, 5), 0);
}

TEST(StoredBoxes, RefuseWhatIsNoTiling) {
  const auto file = numbers(100);
  const auto box = [&](int64_t row, int64_t rows, int64_t begin = 0) {
    return StoredBox{file, begin, {row, 0}, {rows, 5}, {5, 1}};
  };
  EXPECT_EQ(reason({4, 5}, {box(0, 4)}), "");
  EXPECT_EQ(reason({4, 5}, {box(0, 3)}), "bad");             // a hole
  EXPECT_EQ(reason({4, 5}, {box(0, 3), box(2, 1)}), "bad");  // overlap, right in sum
  EXPECT_EQ(reason({4, 5}, {box(0, 4), box(3, 1)}), "bad");  // too much
  EXPECT_EQ(reason({4, 5}, {box(2, 3)}), "bad");             // leaves the shape
  EXPECT_EQ(reason({4, 5}, {box(0, 4, 324)}), "bad");        // leaves the file
  EXPECT_EQ(reason({4, 5}, {box(0, 4, 320)}), "");
  EXPECT_EQ(reason({4, 5}, {{file, 0, {0, 0}, {4, 5}, {-5, 1}}}), "bad");
  EXPECT_EQ(reason({4, 5}, {{file, 0, {0, 0}, {4, 5}, {INT64_MAX / 2, 1}}}), "bad");
  EXPECT_EQ(reason({4, 5}, {{file, 0, {0}, {20}, {1}}}), "bad");
  EXPECT_EQ(reason({0, 5}, {}), "");
}

}  // namespace
}  // namespace invar
