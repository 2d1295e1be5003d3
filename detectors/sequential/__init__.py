"""Sequential detection of drift: bets against "inside its gate", evidence that may be looked at.

Read `band.py` (the null), `bets.py` (what is bet on it), `evidence.py` (how bets add up over
time), then `watch.py` (all tiers of all streams in one step) and `report.py` (what is told).
The promise: at most T / A false alarms of a stream in a time T, however often one looks, however
big or bursty the traffic; `tiers.py` turns a budget of the whole fleet into A.
"""
