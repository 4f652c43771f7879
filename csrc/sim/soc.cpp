#include "sim/soc.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>

#include <fmt/format.h>

#include "sim/env.h"
#include "sim/soc_data.h"
#include "sim/toml.h"

namespace cann::sim {
namespace {

constexpr double kMiB = 1 << 20;
// Operations a cube core completes per cycle in fp16: a 16*16*16 tile, a multiply and an add each (H1).
constexpr double kTileFlops = 16.0 * 16.0 * 16.0 * 2.0;

// How a key of the file sets a chip's figure. `zero`: 0 is a value, not a mistake.
struct Key {
  std::string_view name;
  bool zero;
  std::function<void(Soc&, double)> set;
};

template <class T>
Key number(std::string_view name, T Soc::*member, bool zero = false) {
  return {name, zero, [member](Soc& soc, double value) { soc.*member = static_cast<T>(value); }};
}
Key mebibytes(std::string_view name, size_t Soc::*member) {
  return {name, false, [member](Soc& soc, double value) { soc.*member = static_cast<size_t>(value * kMiB); }};
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = {
      number("version", &Soc::version),
      number("cube_cores", &Soc::cube_cores),
      number("vector_cores", &Soc::vector_cores),
      number("cube_mhz", &Soc::cube_freq_mhz),
      number("peak_fp16_tflops", &Soc::peak_fp16_tflops),
      number("fp32_ratio", &Soc::fp32_ratio),
      number("int8_ratio", &Soc::int8_ratio),
      number("bf16_cube", &Soc::bf16_cube, true),
      mebibytes("l2_mib", &Soc::l2_bytes),
      mebibytes("hbm_mib", &Soc::hbm_bytes),
      mebibytes("usable_mib", &Soc::usable_hbm_bytes),
      number("hbm_gbps", &Soc::hbm_gbps),
      number("hbm_efficiency", &Soc::hbm_efficiency),
      number("matmul_peak", &Soc::matmul_peak),
      number("matmul_k_half", &Soc::matmul_k_half, true),
      number("matmul_cap", &Soc::matmul_cap),
      number("attention_forward", &Soc::attention_forward),
      number("attention_backward", &Soc::attention_backward),
      number("mesh_size", &Soc::mesh_size),
      number("mesh_link_gbps", &Soc::mesh_link_gbps),
      number("mesh_pair_gbps", &Soc::mesh_pair_gbps),
      number("mesh_switched", &Soc::mesh_switched, true),
      number("sio_gbps", &Soc::sio_gbps, true),
      number("nic_gbps", &Soc::nic_gbps),
      number("h2d_gbps", &Soc::h2d_gbps),
      number("d2h_gbps", &Soc::d2h_gbps),
      number("cube_us", &Soc::cube_us, true),
      number("vector_us", &Soc::vector_us, true),
      number("collective_us", &Soc::collective_us, true),
      number("host_us", &Soc::host_us, true),
  };
  return all;
}

std::string known_names(const std::vector<Soc>& table) {
  std::string known;
  for (const Soc& soc : table) known += (known.empty() ? "" : ", ") + soc.name;
  return known;
}

Soc* find(std::vector<Soc>& table, std::string_view name) {
  const auto it = std::ranges::find(table, name, &Soc::name);
  return it == table.end() ? nullptr : &*it;
}

double positive(const toml::Entry& entry, const Key& key, const std::string& where) {
  const auto* value = std::get_if<double>(&entry.value);
  if (value == nullptr || *value < 0 || (*value == 0 && !key.zero)) {
    throw std::invalid_argument(fmt::format("{}: {} must be a positive number", where, entry.key));
  }
  return *value;
}

Soc starting_point(const toml::Table& table, const std::string& origin, std::vector<Soc>& chips) {
  for (const toml::Entry& entry : table.entries) {
    if (entry.key != "base") continue;
    const auto* name = std::get_if<std::string>(&entry.value);
    const Soc* base = name == nullptr ? nullptr : find(chips, *name);
    if (base == nullptr) {
      throw std::invalid_argument(
          fmt::format("{}:{}: base names no chip above it. Known: {}.", origin, entry.line, known_names(chips)));
    }
    Soc soc = *base;
    soc.peak_fp16_tflops = 0;  // follows from cores and clock unless given again
    return soc;
  }
  const Soc* same = find(chips, table.name);
  return same == nullptr ? Soc() : *same;
}

Soc read_chip(const toml::Table& table, const std::string& origin, std::vector<Soc>& chips) {
  Soc soc = starting_point(table, origin, chips);
  soc.name = table.name;
  bool clocked = false, peak = false;
  for (const toml::Entry& entry : table.entries) {
    if (entry.key == "base") continue;
    const std::string where = fmt::format("{}:{}", origin, entry.line);
    const auto key = std::ranges::find(keys(), entry.key, &Key::name);
    if (key == keys().end())
      throw std::invalid_argument(fmt::format("{}: there is no figure \"{}\"", where, entry.key));
    key->set(soc, positive(entry, *key, where));
    clocked |= entry.key.starts_with("cube_");
    peak |= entry.key == "peak_fp16_tflops";
  }
  if (!peak && (clocked || soc.peak_fp16_tflops == 0)) {
    soc.peak_fp16_tflops = soc.cube_cores * soc.cube_freq_mhz * kTileFlops / 1e6;
  }
  if (soc.cube_cores == 0 || soc.peak_fp16_tflops == 0 || soc.usable_hbm_bytes == 0 || soc.hbm_gbps == 0 ||
      soc.hbm_efficiency == 0 || soc.matmul_peak == 0 || soc.mesh_link_gbps == 0 || soc.nic_gbps == 0) {
    throw std::invalid_argument(
        fmt::format("{}:{}: chip \"{}\" lacks figures; name a similar chip with base = \"...\" to inherit them", origin,
                    table.line, table.name));
  }
  return soc;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument(fmt::format("TORCH_CANN_SOC_FILE: cannot read \"{}\"", path));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<Soc> read_all() {
  std::vector<Soc> table;
  read_soc_table(kSocTable, "soc.toml", table);
  for (const std::string& path : Env::get().soc_files) read_soc_table(read_file(path), path, table);
  std::ranges::stable_sort(table, {}, &Soc::version);
  return table;
}

const std::vector<Soc>& all_chips() {
  static const std::vector<Soc> table = read_all();
  return table;
}

}  // namespace

void read_soc_table(std::string_view text, const std::string& origin, std::vector<Soc>& table) {
  for (const toml::Table& entry : toml::parse(text, origin)) {
    Soc soc = read_chip(entry, origin, table);
    if (Soc* same = find(table, soc.name)) {
      *same = std::move(soc);
    } else {
      table.push_back(std::move(soc));
    }
  }
}

std::span<const Soc> soc_table() { return all_chips(); }

const Soc& find_soc(std::string_view name) {
  for (const Soc& soc : all_chips()) {
    if (soc.name == name) return soc;
  }
  throw std::invalid_argument(
      fmt::format("There is no chip \"{}\" in the SoC table. Known: {}.", name, known_names(all_chips())));
}

}  // namespace cann::sim
