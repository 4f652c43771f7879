// Device initialisation. The server is one per process, so each case runs in a process of its own.

#include "sim/server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <utility>

namespace cann::sim {
namespace {

using Variables = std::initializer_list<std::pair<const char*, const char*>>;

// Exits with what `action` returns, or with 99 and the message on stderr.
template <typename Action>
[[noreturn]] void exit_with(Variables variables, Action action) {
  for (const char* name : {"ASCEND_RT_VISIBLE_DEVICES", "TORCH_CANN_DEVICE_COUNT", "TORCH_CANN_SOC"}) unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  try {
    _exit(action());
  } catch (const std::exception& error) {
    fprintf(stderr, "%s", error.what());
    _exit(99);
  }
}

int visible() { return Server::visible_card_count(); }
int cards() { return Server::get().card_count(); }

TEST(ServerDeathTest, CountsVisibleCardsWithoutInitialising) {
  EXPECT_EXIT(exit_with({}, visible), testing::ExitedWithCode(8), "");
  EXPECT_EXIT(exit_with({{"TORCH_CANN_DEVICE_COUNT", "3"}}, visible), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(exit_with({{"ASCEND_RT_VISIBLE_DEVICES", ""}}, visible), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_with({{"ASCEND_RT_VISIBLE_DEVICES", "7,1"}}, visible), testing::ExitedWithCode(2), "");
  EXPECT_EXIT(exit_with({}, [] { return visible() == 8 && Server::initialized() ? 1 : 0; }), testing::ExitedWithCode(0),
              "");
}

TEST(ServerDeathTest, VisibilityFollowsTheEnvironmentUntilInitialised) {
  EXPECT_EXIT(exit_with({{"ASCEND_RT_VISIBLE_DEVICES", "0"}},
                        [] {
                          const int before = visible();
                          setenv("ASCEND_RT_VISIBLE_DEVICES", "0,1,2", 1);
                          const int changed = visible();
                          Server::get();
                          setenv("ASCEND_RT_VISIBLE_DEVICES", "0", 1);
                          return before * 100 + changed * 10 + visible();
                        }),
              testing::ExitedWithCode(133), "");
}

TEST(ServerDeathTest, LogicalCardsMapToPhysicalOnes) {
  EXPECT_EXIT(exit_with({{"ASCEND_RT_VISIBLE_DEVICES", "7,2"}},
                        [] { return Server::get().physical_id(0) * 10 + Server::get().physical_id(1); }),
              testing::ExitedWithCode(72), "");
}

TEST(ServerDeathTest, EveryCardHoldsItsContext) {
  EXPECT_EXIT(exit_with({{"TORCH_CANN_HBM_MB", "1024"}, {"TORCH_CANN_DEVICE_COUNT", "2"}},
                        [] {
                          Server& server = Server::get();
                          for (int card = 0; card < 2; ++card) {
                            if (server.hbm().used(card) != Server::kContextBytes) return 1;
                          }
                          return server.hbm().capacity() == size_t{1024} << 20 ? 0 : 2;
                        }),
              testing::ExitedWithCode(0), "");
}

TEST(ServerDeathTest, ErrorsNameTheCause) {
  EXPECT_EXIT(exit_with({{"ASCEND_RT_VISIBLE_DEVICES", ""}}, cards), testing::ExitedWithCode(99),
              "No NPU is visible.*ASCEND_RT_VISIBLE_DEVICES");
  EXPECT_EXIT(exit_with({{"TORCH_CANN_SOC", "H100"}}, cards), testing::ExitedWithCode(99), "H100.*Ascend910B2");
  EXPECT_EXIT(exit_with({{"TORCH_CANN_DEVICE_COUNT", "0"}}, visible), testing::ExitedWithCode(99),
              "TORCH_CANN_DEVICE_COUNT");
}

TEST(ServerDeathTest, InitialisationMayBeTriedAgain) {
  EXPECT_EXIT(exit_with({{"ASCEND_RT_VISIBLE_DEVICES", ""}},
                        [] {
                          try {
                            Server::get();
                            return 1;
                          } catch (const std::exception&) {
                            setenv("ASCEND_RT_VISIBLE_DEVICES", "4", 1);
                          }
                          return Server::get().physical_id(0) == 4 && Server::initialized() ? 0 : 2;
                        }),
              testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cann::sim
