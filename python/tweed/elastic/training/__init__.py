"""Members in a plain training loop: hooks make each iteration a step, or part of a round, of all members.

run, loop              `ElasticTraining`, which `attach(elastic=...)` returns; `connect`: it meets the others
steps, rounds          what one iteration gives and takes: in step, or by rounds
gradients, movement    what is contributed; `sums`: how it is added up while members come and go
closure, evaluations   optimizers that take a closure
loader, buffers, ddp   which samples are whose; state that is no parameter; a model in DDP
sharded_member         a member that is several processes, with a shard of each parameter in each
checks                 what does not go with members, and why
"""
