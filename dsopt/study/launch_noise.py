"""How much two launches of one configuration differ, in addition to the noise of their steps.

All figures are relative to the mean of the configuration. The steps of one run never show this noise, however many
there are. One measurement: runs of one configuration were 2 to 20 % apart on two CPU cores that were shared
(docs/benchmarks.md, "Against DeepSpeed's own autotuner"). The usual deviation is an assumption for a machine that does
nothing else, for which the simulated clusters draw 0.5 to 1 %; what a study launches again corrects it.
"""

from typing import Final

# Standard deviation of a launch, usually.
USUAL: Final = 0.007

# By how much a configuration differs from what the best model of step times would say (standard deviation).
UNEXPLAINED: Final = 0.015

# Standard deviation, from its steps, of a run that does not say how sure its figure is: half `measurement.precision`.
STEPS_UNTOLD: Final = 0.01
