#include "core/text/batch_source.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace invar {
namespace {

std::shared_ptr<TokenBuffer> counting_tokens(int64_t count) {
  auto tokens = std::make_shared<TokenBuffer>(1 << 20);
  for (int32_t i = 0; i < count; ++i) EXPECT_TRUE(tokens->append(std::vector<int32_t>{i}).ok());
  return tokens;
}

std::shared_ptr<const Sequences> sequences_of(std::shared_ptr<const TokenBuffer> tokens, SequenceOptions options) {
  auto sequences = Sequences::create(std::move(tokens), options);
  EXPECT_TRUE(sequences.ok()) << sequences.status().message();
  return std::make_shared<Sequences>(*sequences);
}

TEST(Sequences, TargetsAreTheNextTokensAndTheTailIsHeldOut) {
  const auto sequences = sequences_of(counting_tokens(101), {.length = 10, .heldout_fraction = 0.15});
  EXPECT_EQ(sequences->training(), 8);
  EXPECT_EQ(sequences->heldout(), 2);
  TokenBatch batch;
  sequences->append_training(3, &batch);
  sequences->append_heldout(1, &batch);
  ASSERT_EQ(batch.tokens(), 20);
  EXPECT_EQ(batch.ids[0], 30);
  EXPECT_EQ(batch.targets[9], 40);
  EXPECT_EQ(batch.ids[10], 90);
  EXPECT_EQ(batch.targets[19], 100);
  EXPECT_EQ(batch.offsets, (std::vector<int32_t>{0, 10, 20}));
}

TEST(Sequences, TooShortATextIsRefusedWithTheNumbers) {
  auto result = Sequences::create(counting_tokens(10), {.length = 10});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().reason(), "text.sequence_too_long");
  EXPECT_NE(result.status().message().find("10 tokens"), std::string::npos);
  EXPECT_TRUE(Sequences::create(counting_tokens(11), {.length = 10}).ok());
  EXPECT_FALSE(Sequences::create(counting_tokens(11), {.length = 10, .heldout_fraction = 0.01}).ok());
}

TEST(Sequences, DocumentPackingCutsAttentionAndMasksTheEndToken) {
  auto tokens = std::make_shared<TokenBuffer>(300);
  for (const std::vector<int32_t>& document :
       std::vector<std::vector<int32_t>>{{1, 2, 257}, {3, 257}, {4, 5, 6, 257}, {7, 8, 257}}) {
    tokens->begin_document();
    ASSERT_TRUE(tokens->append(document).ok());
  }
  const auto cut = sequences_of(tokens, {.length = 5, .packing = Packing::kDocuments});
  TokenBatch batch;
  cut->append_training(0, &batch);
  cut->append_training(1, &batch);
  EXPECT_EQ(batch.ids, (std::vector<int32_t>{1, 2, 257, 3, 257, 4, 5, 6, 257, 7}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{2, 257, -1, 257, -1, 5, 6, 257, -1, 8}));
  EXPECT_EQ(batch.offsets, (std::vector<int32_t>{0, 3, 5, 9, 10}));
  const auto joined = sequences_of(tokens, {.length = 5});
  batch.clear();
  joined->append_training(0, &batch);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{2, 257, 3, 257, 4}));
  EXPECT_EQ(batch.offsets, (std::vector<int32_t>{0, 5}));
}

std::vector<int32_t> first_ids(BatchSource& source, int64_t batches, int64_t count) {
  std::vector<int32_t> result;
  TokenBatch batch;
  for (int64_t i = 0; i < batches; ++i) {
    EXPECT_TRUE(source.next(count, &batch).ok());
    for (int64_t s = 0; s < batch.sequences; ++s) result.push_back(batch.ids[static_cast<size_t>(s) * 10]);
  }
  return result;
}

TEST(BatchSource, EveryEpochVisitsEachSequenceOnceInANewOrder) {
  const auto sequences = sequences_of(counting_tokens(71), {.length = 10});
  BatchSource source(sequences, {.shuffle = true, .seed = 5});
  auto first = first_ids(source, 1, 7), second = first_ids(source, 1, 7);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, (std::vector<int32_t>{0, 10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(second, first);
}

TEST(BatchSource, SeekContinuesExactlyAlsoAcrossAnEpoch) {
  const auto sequences = sequences_of(counting_tokens(71), {.length = 10});
  for (bool shuffle : {false, true}) {
    BatchSource whole(sequences, {.shuffle = shuffle, .seed = 9});
    const auto expected = first_ids(whole, 8, 3);
    for (int64_t cut = 0; cut <= 8; ++cut) {
      BatchSource before(sequences, {.shuffle = shuffle, .seed = 9}), after(sequences, {.shuffle = shuffle, .seed = 9});
      auto visited = first_ids(before, cut, 3);
      ASSERT_TRUE(after.seek(before.position()).ok());
      const auto rest = first_ids(after, 8 - cut, 3);
      visited.insert(visited.end(), rest.begin(), rest.end());
      EXPECT_EQ(visited, expected) << "cut after " << cut;
      EXPECT_EQ(after.position(), whole.position());
    }
  }
}

TEST(BatchSource, SeedsGiveDifferentOrders) {
  const auto sequences = sequences_of(counting_tokens(201), {.length = 10});
  BatchSource a(sequences, {.shuffle = true, .seed = 1}), b(sequences, {.shuffle = true, .seed = 2});
  EXPECT_NE(first_ids(a, 1, 20), first_ids(b, 1, 20));
}

TEST(BatchSource, GivenOrderIsFollowedAndEnds) {
  const auto sequences = sequences_of(counting_tokens(101), {.length = 10});
  auto source = BatchSource::with_order(sequences, {55, 7, 90});
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(first_ids(*source, 1, 2), (std::vector<int32_t>{55, 7}));
  TokenBatch batch;
  EXPECT_EQ(source->next(2, &batch).reason(), "text.order_exhausted");
  EXPECT_EQ(first_ids(*source, 1, 1), (std::vector<int32_t>{90}));
  EXPECT_EQ(BatchSource::with_order(sequences, {91}).status().reason(), "text.bad_order");
  EXPECT_EQ(BatchSource::with_order(sequences, {-1}).status().reason(), "text.bad_order");
}

TEST(BatchSource, RefusesAPositionOfOtherData) {
  const auto sequences = sequences_of(counting_tokens(71), {.length = 10});
  BatchSource source(sequences, {});
  EXPECT_EQ(source.seek({0, 8}).reason(), "text.bad_position");
  EXPECT_TRUE(source.seek({3, 7}).ok());
}

}  // namespace
}  // namespace invar
