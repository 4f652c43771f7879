"""npu-plan: what a training script would do on NPUs that are not there.

A script runs dry (its npu tensors have no memory, its operators do no arithmetic) as the ranks that differ, and the
device's cost model says how long a step takes, what fills HBM and how much communication is exposed.

Layers, each using those before it: ``unknown``, ``host_copies``, ``finite`` and ``values`` (what a dry run does not know),
``initialisation`` (random values that nobody needs), ``saving`` (checkpoints), ``failures`` (what ended a script), ``script`` (one rank, one process),
``exchange`` (what ranks tell each other), ``ranks`` (several ranks side by side), ``analysis`` (times and memory out of their traces),
``report``, ``charts``, ``html`` and ``perfetto`` (what is shown), ``cli``. ``reference``, ``estimate`` and ``search`` run a
transformer program of their own in place of a script, of which ``contention`` replays the parts that share a network card. ``stragglers``
is the wait for the slowest card, ``output`` knows when nobody reads.
"""
