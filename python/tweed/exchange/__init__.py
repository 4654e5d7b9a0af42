"""What happens to a bucket between a worker's contribution and its update.

    contribution -> finite? -> encode -> to the owner of each range -> decode, aggregate -> reply -> update

`attach`, `torch` and `simulate` call it: it holds no hooks on a model and no virtual network, and reads the
clock only where it waits.

base                what `Run` drives, and in which order; `table` has which strategy takes which
bucket              several tensors side by side in one buffer
context             where a process stands among those that train: what a run needs of a group, or without one
communicator        the process group: start, wait, count; `engine` is what the backend offers beyond torch
finite              flags before anything is compressed: who contributes, and is it finite
gradients           reducers of gradients: summed on the way, compressed, or as the autotuner chooses
factors             reducer of matrices that are products of few rows; `factor_record` knows which are
ordered             reducer of single messages in the order of their norm, over `p2p`
gradient_form       in which form such a message carries a gradient
model_averaging     exchange after steps: of models as they are; `movement`: of movements, by a memory
transfers           one buffer through a memory, a codec and the network, as a coroutine
owners              who owns which range of a buffer, and aggregates what was received about it
collectives         transfers of many buffers at once, over a process group
compressed_buffers  all buffers of a run, and what is kept of them; `checkpoint` stores it
losses              what the transport lost: residuals, and a record
autotuner           the live side of `compress="auto"`
cadence_driver      the cadence in real time
hub                 an owner that its workers reach when they like: state machines
"""
