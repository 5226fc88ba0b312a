// Compiling this is the test: invar.hpp alone, as C++17 and C++20, without a warning.
#include "invar/invar.hpp"

#if __cplusplus >= 202002L
#include <span>

static_assert(std::is_convertible_v<std::span<const int32_t>, invar::View<const int32_t>>);
static_assert(std::is_convertible_v<std::span<float>, invar::Memory>);
#endif

// A view does not change what it may only read.
static_assert(std::is_convertible_v<std::vector<int32_t>&, invar::View<const int32_t>>);
static_assert(!std::is_convertible_v<const std::vector<int32_t>&, invar::View<int32_t>>);
static_assert(!std::is_convertible_v<const std::vector<float>&, invar::Memory>);
static_assert(!std::is_convertible_v<std::vector<int64_t>&, invar::View<const int32_t>>);

// Handles move without throwing and are never copied.
template <typename T>
constexpr bool kMoveOnly = std::is_nothrow_move_constructible_v<T>&& std::is_nothrow_move_assignable_v<T> &&
                           !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(kMoveOnly<invar::Runtime> && kMoveOnly<invar::Cancel> && kMoveOnly<invar::Checkpoint> &&
              kMoveOnly<invar::Model> && kMoveOnly<invar::Session> && kMoveOnly<invar::Tensor> &&
              kMoveOnly<invar::Optimizer> && kMoveOnly<invar::Accumulator> && kMoveOnly<invar::Tokenizer>);
