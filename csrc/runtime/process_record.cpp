#include "runtime/process_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "sim/env.h"
#include "sim/server.h"

namespace cann::process_record {
namespace {

std::atomic<Card*> g_cards{nullptr};
pid_t g_owner = 0;
std::string* g_path = nullptr;  // never freed: needed at exit

// Field 22 of /proc/self/stat (proc_pid_stat(5)); the name before it may hold spaces and ends with the last ")".
uint64_t start_of_this_process() {
  std::ifstream file("/proc/self/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)));
  std::string field;
  constexpr int kFieldsAfterName = 20;
  for (int i = 0; i < kFieldsAfterName && fields >> field; ++i) {
  }
  return std::strtoull(field.c_str(), nullptr, 10);
}

void remove_at_exit() {
  g_cards.store(nullptr, std::memory_order_relaxed);
  if (::getpid() == g_owner) ::unlink(g_path->c_str());
}

// Whether `folder` is there and belongs to this user alone, so that no other user can put a link in the way.
bool private_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), S_IRWXU) == 0) return true;
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void fill(Header& header, Card* cards, const sim::Server& server, sim::Hbm& hbm) {
  std::memcpy(header.magic, "CANNPROC", sizeof(header.magic));
  header.cards = static_cast<uint32_t>(server.card_count());
  header.started = start_of_this_process();
  const std::string name(server.soc().name);
  std::memcpy(header.soc, name.data(), std::min(name.size(), sizeof(header.soc) - 1));
  for (int card = 0; card < server.card_count(); ++card) {
    cards[card] = {static_cast<uint64_t>(server.physical_id(card)), hbm.capacity(), hbm.used(card)};
  }
  std::atomic_ref(header.version).store(1, std::memory_order_release);  // last: a reader takes it for complete
}

}  // namespace

void open() {
  const std::string& folder = sim::Env::get().runtime_dir;
  if (!private_folder(folder)) return;
  auto& server = sim::Server::get();
  g_path = new std::string(folder + "/" + std::to_string(::getpid()));
  ::unlink(g_path->c_str());  // left by a process that was killed
  const int file = ::open(g_path->c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (file < 0) return;
  const size_t bytes = sizeof(Header) + sizeof(Card) * static_cast<size_t>(server.card_count());
  void* mapped = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  ::close(file);
  if (mapped == MAP_FAILED) {
    ::unlink(g_path->c_str());
    return;
  }
  ::madvise(mapped, bytes, MADV_DONTFORK);  // a child must not write into its parent's account
  auto* header = static_cast<Header*>(mapped);
  auto* cards = reinterpret_cast<Card*>(header + 1);
  fill(*header, cards, server, server.hbm());
  g_owner = ::getpid();
  std::atexit(remove_at_exit);
  g_cards.store(cards, std::memory_order_release);
}

void set_used(int card, size_t bytes) noexcept {
  Card* cards = g_cards.load(std::memory_order_acquire);
  if (cards == nullptr || ::getpid() != g_owner) return;
  std::atomic_ref(cards[card].used).store(bytes, std::memory_order_relaxed);
}

}  // namespace cann::process_record
