#pragma once
// The algorithms between hosts, as plans. `rank` of `n` ranks, n > 1; S is the bytes of the whole tensor.
//
//   all_reduce       whole             1 step, S (n-1) sent by each rank: everything to everybody, who all reduce it.
//                    direct            2 steps, 2 S (n-1)/n: slice r to rank r, which reduces it, and back.
//                    ring              2 (n-1) steps, 2 S (n-1)/n: slices go round, gathering, then once more,
//                    finished. halving-doubling  2 log2 n steps, 2 S (n-1)/n: halves to ever nearer partners, and back.
//                    n a power
//                                      of two.
//                    tree              2 ceil(log2 n) steps; S up a binomial tree to rank 0 and S down to each child.
//   reduce           whole             1 step, S from each rank but the root, which reduces it.
//                    direct            2 steps, S: slice r to rank r, which reduces it, and S/n from there to the root.
//   reduce_scatter   direct            1 step, what is for others of the input: S (n-1)/n when parts are equal.
//                    ring              n-1 steps, as much.
//   all_gather       direct            1 step, the own part to n-1 ranks.
//                    ring              n-1 steps, as much.
//   broadcast        direct            1 step, S (n-1) from the root.
//                    tree              1 + ceil(log2 n) steps, S from each rank to each of its children.
//
// whole and direct reduce in rank order; the others in the order of their steps, each element in one place, so that
// results are bitwise equal on all ranks and from run to run. Partial sums of 16-bit types travel as such: ring,
// halving-doubling and tree round them at every step. Means divide once, by Call::divisor or n, in the last step that
// adds. In broadcast and reduce every rank sends every other one an empty message at least, so that ranks that disagree
// about the root find out. No torch here.

#include "distributed/algorithm_choice.h"
#include "distributed/plan.h"

namespace cann::hccl {

// In place.
Plan all_reduce_plan(Algorithm algorithm, const Call& call, int rank, int n, Span data, Scratch& scratch);
// To Call::root; elsewhere `data` is not changed. whole or direct.
Plan reduce_plan(Algorithm algorithm, const Call& call, int rank, int n, Span data, Scratch& scratch);
// inputs[r] goes to rank r, `output` has the size of inputs[rank] and may be that memory. Ring overwrites nothing else.
Plan reduce_scatter_plan(Algorithm algorithm, const Call& call, int rank, int n, const std::vector<Span>& inputs,
                         Span output, Scratch& scratch);
// parts[rank] is this rank's; parts may differ in size.
Plan all_gather_plan(Algorithm algorithm, int rank, int n, const std::vector<Span>& parts);
Plan broadcast_plan(Algorithm algorithm, int rank, int n, int root, Span data);

// `whole` cut at element boundaries into one part for each of n ranks.
std::vector<Span> slices_of(Span whole, DataType dtype, int n);

}  // namespace cann::hccl
