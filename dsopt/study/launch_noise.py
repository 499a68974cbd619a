"""How much two launches of one configuration differ, in addition to the noise of their steps.

All figures are relative to the mean of the configuration. The steps of one run never show this noise, however many
there are. One measurement: runs of one configuration were 5 % apart on two CPU cores that were shared
(docs/benchmarks.md, "Against DeepSpeed's own autotuner"). The deviations below are assumptions for a machine that does
nothing else, for which the simulated clusters draw 0.5 to 1 %; a study's own runs correct them if they can.

There are several numbers, because each decision errs to its own side. With 0.7 % for search and confirmation alike, 3
of 120 simulated studies took other runs; with 0.8 %, 6.
"""

from typing import Final

# Standard deviation of a launch in the confirmation. This may be the usual one: the residuals of the rounds show how
# much larger the noise really is (`search/confirm.py`).
CONFIRMED: Final = 0.007

# Standard deviation of a launch in the search, which runs each candidate once and so cannot correct it.
SEARCHED: Final = 0.008

# The most that two launches differ by in 99 % of cases, for a run that dsopt stops for good: z · √2 · deviation, which
# is 2.576 · √2 · 1.29 %. This assumes one or two per cent each, since the best was the luckiest of many.
MOST_BETWEEN_TWO: Final = 0.047

# Standard deviation, from its steps, of a run that does not say how sure its figure is: half `measurement.precision`.
STEPS_UNTOLD: Final = 0.01
