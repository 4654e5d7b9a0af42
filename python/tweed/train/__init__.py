"""The training job behind `tweed train`: tasks on real data, the loop, checkpoints, and a comparison.

settings    what a job is asked to do, as a plain value
tasks/      one file per task
batches     which samples a rank sees at which step
sides       how ranks keep one model: tweed's `attach`, or the peer it is compared with
loop        what each worker does
meter       what counts as training: its time, its waiting, its bytes
checkpoint  a worker's state on disk
folder      runs/NAME: settings, figures and checkpoints
launch      starts the workers
together    whose measurements make one figure
elastic_worker  a worker of a run whose members come and go
elastic_launch  starts such workers, and anew those that died; or joins them
torchrun    takes part as a worker that torchrun has started
display     the live view
results     what a run came to, and what each side took to the same accuracy
"""

from __future__ import annotations
