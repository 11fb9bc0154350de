"""Training of a network: training loop, training state and run folder.

Modules in reading order: epoch_plan, trainer, state, interruption, run_directory, training_run,
then the others in any order.
"""

from nmt.foundation.part_limits import PartGroup

GROUPS = {
    "optimizer": PartGroup("nmt.training.optimizer", ("parameters",)),
    "schedule": PartGroup("nmt.training.schedule"),
    "objective": PartGroup("nmt.training.objective", optional=("teachers", "candidate_generator")),
    "tracker": PartGroup("nmt.training.tracker"),
    "callback": PartGroup("nmt.training.callback"),
    "trainer": PartGroup("nmt.training.trainer.Trainer"),
}
"""Maps names of configuration groups, such as `optimizer` and `schedule`, to their classes."""
