"""What a group, a hub and members share: hooks on a model and its optimizers, and the base of a run.

gradient       hooks on parameters: gradients go into buckets, averages come out
optimizers     when all of them have stepped, and that no other one does
trained        the parameters, looked up in the model each time
last_exchange  whether anything has used its gradients, or it is taken back
settings       what is said of a run beside its strategy
setup          what a run is made from, once ranks have agreed
base_run, run  hooks in their order, and the run's public face
advice         what goes wrong in silence, and what is said of it
checks         what must hold before ranks train together

What then happens to a bucket is `tweed.exchange`'s.
"""
