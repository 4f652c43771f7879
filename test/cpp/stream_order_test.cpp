#include "runtime/stream_order.h"

#include <gtest/gtest.h>

namespace cann {
namespace {

TEST(StreamOrder, AStreamIsOrderedWithItself) {
  StreamOrder order;
  const size_t a = order.number(7);
  EXPECT_EQ(order.number(7), a);
  const uint64_t first = order.launch(a), second = order.launch(a);
  EXPECT_LT(first, second);
  EXPECT_TRUE(order.ordered(a, a, second));
}

TEST(StreamOrder, AnEventOrdersWhatWasLaunchedBeforeIt) {
  StreamOrder order;
  const size_t a = order.number(1), b = order.number(2);
  const uint64_t before = order.launch(a);
  const StreamOrder::Clock event = order.recorded(a);
  const uint64_t after = order.launch(a);
  EXPECT_FALSE(order.ordered(b, a, before));
  order.wait(b, event);
  EXPECT_TRUE(order.ordered(b, a, before));
  EXPECT_FALSE(order.ordered(b, a, after));
}

TEST(StreamOrder, OrderIsTransitive) {
  StreamOrder order;
  const size_t a = order.number(1), b = order.number(2), c = order.number(3);
  const uint64_t epoch = order.launch(a);
  order.wait(b, order.recorded(a));
  order.wait(c, order.recorded(b));
  EXPECT_TRUE(order.ordered(c, a, epoch));
}

TEST(StreamOrder, WhatTheHostWaitedForIsKnownToAllStreams) {
  StreamOrder order;
  const size_t a = order.number(1), b = order.number(2);
  const uint64_t epoch = order.launch(a);
  EXPECT_FALSE(order.host_knows(a, epoch));
  order.host_wait(order.recorded(a));
  EXPECT_TRUE(order.host_knows(a, epoch));
  EXPECT_TRUE(order.ordered(b, a, epoch));
  const uint64_t later = order.launch(b);
  EXPECT_FALSE(order.ordered(order.number(3), b, later));
  order.host_wait_all();
  EXPECT_TRUE(order.ordered(order.number(4), b, later));
}

TEST(StreamOrder, AnEventRecordedBeforeAnythingOrdersNothing) {
  StreamOrder order;
  const size_t a = order.number(1), b = order.number(2);
  order.wait(b, {});
  EXPECT_FALSE(order.ordered(b, a, order.launch(a)));
}

}  // namespace
}  // namespace cann
