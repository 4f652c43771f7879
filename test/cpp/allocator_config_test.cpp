// PYTORCH_NPU_ALLOC_CONF: parsing, errors, and the sizes that follow from the options.

#include "runtime/allocator_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace cann {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

AllocatorConfig parse(std::string_view text) {
  AllocatorConfig config;
  config.apply(text);
  return config;
}

std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(AllocatorConfig, DefaultSizes) {
  const AllocatorConfig config;
  EXPECT_EQ(config.block_size(1), 512u);
  EXPECT_EQ(config.block_size(512), 512u);
  EXPECT_EQ(config.block_size(513), 1024u);
  EXPECT_EQ(config.block_size(kMiB + 1), kMiB + 512);
  EXPECT_EQ(config.segment_size(512), 2 * kMiB);
  EXPECT_EQ(config.segment_size(kMiB), 2 * kMiB);
  EXPECT_EQ(config.segment_size(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(config.segment_size(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(config.segment_size(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(config.segment_size(10 * kMiB + 512), 12 * kMiB);
  EXPECT_EQ(config.segment_size(64 * kMiB), 64 * kMiB);
}

TEST(AllocatorConfig, ReadsEveryOption) {
  const AllocatorConfig config = parse(
      " max_split_size_mb:128, garbage_collection_threshold:0.8, expandable_segments:True, large_segment_size_mb:32,"
      "max_non_split_rounding_mb:40, per_process_memory_fraction:0.5, throw_on_npumalloc_oom:True,"
      "pinned_max_round_threshold_mb:64, pinned_max_cached_size_mb:0, ");
  EXPECT_EQ(config.max_split_size, 128 * kMiB);
  EXPECT_DOUBLE_EQ(config.garbage_collection_threshold, 0.8);
  EXPECT_TRUE(config.expandable_segments);
  EXPECT_EQ(config.large_segment_size, 32 * kMiB);
  EXPECT_EQ(config.max_non_split_rounding, 40 * kMiB);
  EXPECT_EQ(config.memory_fraction, 0.5);
  EXPECT_TRUE(config.reject_beyond_fraction);
  EXPECT_EQ(config.pinned_max_round, 64 * kMiB);
  EXPECT_EQ(config.pinned_max_cached, 0u);
}

TEST(AllocatorConfig, OptionsWithoutEffectAreStillChecked) {
  EXPECT_NO_THROW(
      parse("base_addr_aligned_kb:16,page_size:1g,multi_stream_lazy_reclaim:False,pin_memory_expandable_segments:True,"
            "pinned_mem_register:True,pinned_use_background_threads:True,pinned_reserve_segment_size_mb:16,"
            "release_lock_on_npumalloc:True"));
  EXPECT_NE(error_of("base_addr_aligned_kb:17"), "no error");
  EXPECT_NE(error_of("page_size:2m"), "no error");
  EXPECT_NE(error_of("multi_stream_lazy_reclaim:2"), "no error");
}

TEST(AllocatorConfig, UnmentionedOptionsKeepTheirValues) {
  AllocatorConfig config = parse("max_split_size_mb:128,expandable_segments:True");
  config.apply("max_split_size_mb:64");
  EXPECT_EQ(config.max_split_size, 64 * kMiB);
  EXPECT_TRUE(config.expandable_segments);
  config.apply("");
  EXPECT_EQ(config.max_split_size, 64 * kMiB);
}

TEST(AllocatorConfig, ErrorsNameTheOptionAndChangeNothing) {
  const char* cases[] = {"max_split_size_mb:19",
                         "max_split_size_mb:abc",
                         "max_split_size_mb:-5",
                         "garbage_collection_threshold:1",
                         "garbage_collection_threshold:0",
                         "garbage_collection_threshold:nan",
                         "expandable_segments:yes",
                         "large_segment_size_mb:1",
                         "per_process_memory_fraction:1.5",
                         "roundup_power2_divisions:3",
                         "roundup_power2_divisions:[256:3]",
                         "roundup_power2_divisions:[100:4]",
                         "roundup_power2_divisions:[256]",
                         "expandable_segments",
                         "expandable_segments:"};
  for (const char* text : cases) {
    const std::string message = error_of(text);
    const std::string key(text, std::find(text, text + std::string(text).size(), ':'));
    EXPECT_NE(message.find(key), std::string::npos) << text << " -> " << message;
  }
  AllocatorConfig config;
  EXPECT_THROW(config.apply("max_split_size_mb:128,unknown:1"), std::invalid_argument);
  EXPECT_EQ(config.max_split_size, kNoLimit);
  const std::string message = error_of("unknown:1");
  EXPECT_NE(message.find("unknown"), std::string::npos);
  EXPECT_NE(message.find("max_split_size_mb"), std::string::npos) << "must list what is known";
}

TEST(AllocatorConfig, OptionNamesAreSorted) {
  const auto names = AllocatorConfig::option_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_GE(names.size(), 18u);
}

TEST(AllocatorConfig, RoundupOfAllSizes) {
  const AllocatorConfig config = parse("roundup_power2_divisions:4");
  EXPECT_EQ(config.block_size(100), 512u);
  EXPECT_EQ(config.block_size(1200), 1536u);  // up to 4 units: plain rounding
  EXPECT_EQ(config.block_size(5 * kMiB), 5 * kMiB);
  EXPECT_EQ(config.block_size(5 * kMiB + 1), 6 * kMiB);
  EXPECT_EQ(config.block_size(8 * kMiB), 8 * kMiB);
  EXPECT_EQ(config.block_size(9 * kMiB), 10 * kMiB);
}

TEST(AllocatorConfig, RoundupPerInterval) {
  const AllocatorConfig config = parse("roundup_power2_divisions:[4:1,8:2,>:8],max_split_size_mb:64");
  EXPECT_EQ(config.block_size(5 * kMiB + 1), 5 * kMiB + 512) << "one division is plain rounding";
  EXPECT_EQ(config.block_size(3 * kMiB + 1), 3 * kMiB + 512) << "the first entry also covers smaller sizes";
  EXPECT_EQ(config.block_size(9 * kMiB), 12 * kMiB);
  EXPECT_EQ(config.block_size(17 * kMiB), 18 * kMiB);
  EXPECT_EQ(config.block_size(100 * 1024 * kMiB), 104 * 1024 * kMiB);
  EXPECT_EQ(config.max_split_size, 64 * kMiB);
}

TEST(AllocatorConfig, WithoutCachingEveryBlockIsASegment) {
  AllocatorConfig config;
  config.caching = false;
  EXPECT_EQ(config.segment_size(512), 2 * kMiB);
  EXPECT_EQ(config.segment_size(3 * kMiB), 4 * kMiB);
}

}  // namespace
}  // namespace cann
